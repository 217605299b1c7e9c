% rebase("layout.tpl")
<div class="head"><div><h1>Limits</h1><p class="quiet">How much may run at once or start in a time, and what waits for it. A change holds at once, in that pool, until it is reset.</p></div></div>
<div id="live" data-every="5">
% if limits.trouble:
% include("trouble.tpl", trouble=limits.trouble)
% elif not limits.value:
<div class="empty"><p><b>Nothing is limited.</b></p><p>In code: <code>@skedulr.task(limit=skedulr.Limit(concurrency=3, key="{customer_id}"))</code>. A pool knows a limit once a task with it was submitted.</p></div>
% else:
<section><div class="scroll"><table data-rows>
<thead><tr><th>Limit<th>Pool<th>Holds<th>Declared<th class="n">Running<th class="n" title="Keys (or sets of them) with parked tasks">Waiting keys<th><span class="hidden">Actions</span></tr></thead>
<tbody>
% for one in limits.value:
% text = lambda d: "%d at once" % d["concurrency"] if d["concurrency"] is not None else "%g per %g s, burst %d" % (d["rate"], d["per"], d["burst"])
<tr id="limit-{{one["kind"]}}-{{one["pool"]}}-{{one["name"]}}"><th scope="row">{{one["name"]}}
% if one["changed"]:
  <span class="state paused" title="Set here or by set_limit">changed</span>
% end
  <td>{{one["pool"]}}
  <td>{{text(one)}}
  <td>{{text(one["declared"])}}
  <td class="n">{{"" if one["running"] is None else s.count(one["running"])}}
  <td class="n">{{s.count(one["waiting"])}}
  <td class="actions">
% if may_change:
    <form method="post" class="row" action="{{link('/do/limits')}}">
      <input type="hidden" name="token" value="{{token}}"><input type="hidden" name="back" value="{{here}}">
      <input type="hidden" name="name" value="{{one["name"]}}"><input type="hidden" name="pool" value="{{one["pool"]}}">
% if one["kind"] == "concurrency":
      <label>at once <input type="number" name="concurrency" min="1" max="1000000" value="{{one["concurrency"]}}" size="6"></label>
% else:
      <label>rate <input type="number" name="rate" min="0" step="any" value="{{"%g" % one["rate"]}}" size="6"></label>
      <label>per <input type="number" name="per" min="0" step="any" value="{{"%g" % one["per"]}}" size="6"> s</label>
      <label>burst <input type="number" name="burst" min="1" value="{{one["burst"]}}" size="5"></label>
% end
      <button>Set</button>
% if one["changed"]:
      <button class="quiet" name="reset" value="1">Reset</button>
% end
    </form>
% end
</tr>
% end
</tbody></table></div></section>
% end
</div>

% rebase("layout.tpl")
% state, pool = filters.get("state", ""), filters.get("pool", "")
<div class="head"><div><h1>Workflows</h1><p class="quiet">Steps that wait for each other. The newest thousand of each pool, as long as their records are kept.</p></div>
<form method="get" class="row"><input type="hidden" name="state" value="{{state}}"><label>Pool <select name="pool"><option value="">all</option>
% for one in (layout or {}).get("pools", []):
<option{{!' selected' if one["name"] == pool else ''}}>{{one["name"]}}</option>
% end
</select></label><button>Show</button></form></div>
<nav class="tabs" aria-label="State">
  <a href="{{link('/workflows', pool=pool)}}"{{!' aria-current="true"' if not state else ''}}>all</a>
% for one in states:
  <a href="{{link('/workflows', state=one, pool=pool)}}"{{!' aria-current="true"' if state == one else ''}}>{{one}}</a>
% end
</nav>
<div id="live"{{!' data-every="3"' if not filters.get("cursor") else ''}}>
% if page.trouble:
% include("trouble.tpl", trouble=page.trouble)
% elif not page.value["items"]:
<div class="empty">
% if page.value["cursor"]:
  <p><b>None among the newest workflows.</b> There are more to look at.</p>
% elif state or pool or filters.get("cursor"):
  <p><b>No such workflows.</b></p><p>They are listed as long as their records are kept; <a href="{{link('/workflows')}}">all workflows</a> are those there are now.</p>
% else:
  <p><b>No workflow yet.</b></p><p>In Python:</p>
<pre>with skedulr.workflow("import") as w:
    load = w.add(load_file.bind("f.csv"), name="load")
    w.add(report.bind(), name="report", on_success=load)
    w.add(tell.bind("it failed"), on_failure=load)</pre>
% end
</div>
% else:
<section><div class="scroll"><table data-rows>
<thead><tr><th>Workflow<th>State<th>Progress<th>Steps<th>Pool<th class="n">Submitted<th class="n">Took<th><span class="hidden">Actions</span></tr></thead>
<tbody>
% for one in page.value["items"]:
% partly = one["looked_at"] < one["total"]
<tr id="workflow-{{one["id"]}}"><th scope="row"><a href="{{link('/workflows/' + one['id'])}}">{{s.brief(one["name"], 60)}}</a><br><small><code>{{s.brief(one["id"].partition("/")[2], 40)}}</code></small>
  <td>\\
% if one["state"] is None:
<span class="quiet" title="It has more steps than are looked at here">open it to see</span>
% else:
<span class="state {{s.workflow_colour(one["state"])}}">{{one["state"]}}</span>
% end
  <td class="nowrap"><progress max="{{max(1, one["looked_at"])}}" value="{{one["ended"]}}">{{one["ended"]}}</progress> {{s.count(one["ended"])}} of {{s.count(one["looked_at"])}}
% if partly:
    <br><small>of the first; {{s.count(one["total"])}} in all</small>
% end
  <td>\\
% for name, count in sorted(one["counts"].items()):
<span class="state {{name}}">{{s.count(count)}} {{name}}</span> \\
% end

  <td>{{one["id"].partition("/")[0]}}
  <td class="n">{{!s.moment(one["submitted_at"], now)}}
  <td class="n">{{s.duration(one["finished_at"] - one["submitted_at"]) if one["finished_at"] else s.NOTHING}}
  <td class="actions">
% if may_change:
    <form method="post" action="{{link('/do/workflows/' + one['id'])}}" class="row">
      <input type="hidden" name="token" value="{{token}}"><input type="hidden" name="back" value="{{here}}">
% if any(one["counts"].get(end) for end in ("dead", "expired", "cancelled")):
      <button name="action" value="resubmit">Resubmit what failed</button>
% end
% if one["state"] in (None, "running"):
      <button class="danger" name="action" value="cancel" data-confirm="Cancel every step of {{s.brief(one["name"], 60)}} that has not ended?">Cancel</button>
% end
    </form>
% end
</tr>
% end
</tbody></table></div></section>
% end
% if page.value:
<p class="pager">
% if filters.get("cursor"):
<a class="button quiet" href="{{link('/workflows', state=state, pool=pool)}}">First page</a>
% end
% if page.value["cursor"]:
<a class="button" rel="next" href="{{link('/workflows', state=state, pool=pool, cursor=page.value["cursor"])}}">Next page</a>
% end
</p>
% end
</div>

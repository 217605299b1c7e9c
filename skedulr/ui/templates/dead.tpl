% rebase("layout.tpl")
% pool = filters.get("pool", "")
<div class="head"><div><h1>Dead</h1><p class="quiet">Tasks that failed for good. They stay here until they are resubmitted or removed.</p></div>
<form method="get" class="row"><label>Pool <select name="pool"><option value="">all</option>
% for one in (layout or {}).get("pools", []):
<option{{!' selected' if one["name"] == pool else ''}}>{{one["name"]}}</option>
% end
</select></label><button>Show</button></form></div>
<div id="live" data-every="10">
% include("operations_strip.tpl")
% if groups.trouble:
% include("trouble.tpl", trouble=groups.trouble)
% elif not groups.value:
<div class="empty"><p><b>Nothing is dead.</b></p><p>A task comes here after its last retry, when it is rejected, or when it killed its process three times.</p></div>
% else:
% total = sum(one["dead"] for one in (layout or {}).get("pools", []) if not pool or one["name"] == pool)
% seen = sum(group.count for group in groups.value)
% if total > seen:
<p class="quiet">Grouped from the newest {{s.count(seen)}} of {{s.count(total)}}.</p>
% end
% if may_change:
<form method="post" action="{{link('/do/tasks')}}" class="row whole">
<input type="hidden" name="token" value="{{token}}"><input type="hidden" name="back" value="{{here}}"><input type="hidden" name="all" value="1"><input type="hidden" name="state" value="dead"><input type="hidden" name="pool" value="{{pool}}">
<span class="quiet">{{s.count(total)}} dead {{"in pool " + pool if pool else "in all pools"}}:</span>
<button name="action" value="resubmit" data-confirm="Resubmit all {{s.count(total)}} dead tasks {{'of pool ' + pool if pool else 'of every pool'}}?">Resubmit everything</button><button name="action" value="remove" class="danger" data-confirm="Remove all {{s.count(total)}} dead tasks {{'of pool ' + pool if pool else 'of every pool'}} for good?">Remove everything</button>
</form>
% end
<section><div class="scroll"><table class="dead" data-rows>
<thead><tr><th>Task and error<th class="n">Dead<th class="wide">Last 24 hours<th class="n">Newest<th>Pools<th><span class="hidden">Actions</span></tr></thead>
<tbody>
% for group in groups.value[:100]:
% query = 'error:"' + group.error.replace('"', "") + '"' if group.error else ""
<tr><th scope="row"><a href="{{link('/tasks', state='dead', name=group.name, query=query, pool=pool)}}">{{s.brief(group.name, 60)}}</a><br><b class="bad">{{s.brief(group.error or "no error type", 60)}}</b> <small>{{s.brief(group.message, 140)}}</small>
  <td class="n">{{s.count(group.count)}}
  <td class="wide">{{!s.sparkline(group.hours)}}
  <td class="n">{{!s.moment(group.newest_s, now)}}
  <td>{{", ".join(sorted(group.pools))}}
  <td class="actions">
% if may_change:
    <form method="post" action="{{link('/do/tasks')}}" class="row">
      <input type="hidden" name="token" value="{{token}}"><input type="hidden" name="back" value="{{here}}"><input type="hidden" name="all" value="1">
      <input type="hidden" name="state" value="dead"><input type="hidden" name="name" value="{{group.name}}"><input type="hidden" name="query" value="{{query}}"><input type="hidden" name="pool" value="{{pool}}">
      <button name="action" value="resubmit" data-confirm="Resubmit all dead {{s.brief(group.name, 60)}} with {{s.brief(group.error or 'no error', 60)}}?">Resubmit all</button><button name="action" value="remove" class="danger" data-confirm="Remove all dead {{s.brief(group.name, 60)}} with {{s.brief(group.error or 'no error', 60)}} for good?">Remove all</button>
    </form>
% end
</tr>
% end
</tbody></table></div></section>
% end
</div>

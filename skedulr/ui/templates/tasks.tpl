% rebase("layout.tpl")
% state, pool, name, query = (filters.get(one, "") for one in ("state", "pool", "name", "query"))
<div class="head"><h1>Tasks</h1></div>
<nav class="tabs" aria-label="State">
  <a href="{{link('/tasks', pool=pool, name=name, query=query)}}"{{!' aria-current="true"' if not state else ''}}>all</a>
% for one in states:
  <a href="{{link('/tasks', state=one, pool=pool, name=name, query=query)}}"{{!' aria-current="true"' if state == one else ''}}>{{one}}</a>
% end
</nav>
<form class="filters" method="get" action="{{link('/tasks')}}">
  <input type="hidden" name="state" value="{{state}}">
  <label>Pool <select name="pool"><option value="">all</option>
% known = [one["name"] for one in (layout or {}).get("pools", [])]
% for one in known + ([pool] if pool and pool not in known else []):
  <option{{!' selected' if one == pool else ''}}>{{one}}</option>
% end
  </select></label>
  <label>Task <input name="name" list="names" value="{{name}}" placeholder="any" maxlength="200" autocomplete="off"></label>
  <datalist id="names">
% for one in names[:300]:
  <option value="{{one}}"></option>
% end
  </datalist>
  <label class="grow">Text <input name="query" type="search" id="query" value="{{query}}" maxlength="300" autocomplete="off" list="terms" data-terms="{{link('/terms')}}" placeholder="text in arguments or errors, tag:… key:… error:… worker:…"></label>
  <button class="main">Filter</button>
% if state or pool or name or query:
  <a class="button quiet" href="{{link('/tasks')}}">Clear</a>
% end
</form>
<div id="live"{{!' data-every="3"' if not filters.get("cursor") else ''}}>
% include("operations_strip.tpl")
% if page.trouble:
% include("trouble.tpl", trouble=page.trouble)
% elif not page.value.items:
<div class="empty">
% if page.value.cursor:
  <p><b>Nothing among the {{s.count(page.value.looked_at)}} tasks looked at.</b> There are more to look at.</p>
  <p><a class="button" href="{{link('/tasks', state=state, pool=pool, name=name, query=query, cursor=page.value.cursor)}}">Search on</a></p>
% elif state or pool or name or query:
  <p><b>No such tasks.</b></p><p>Tasks that ended are kept for a while and then forgotten; <a href="{{link('/tasks')}}">all tasks</a> are those there are now.</p>
% else:
  <p><b>No tasks yet.</b></p><p>In Python: <code>skedulr.submit("send_email", to="a@example.com")</code>, or <a href="{{link('/submit')}}">submit one here</a>.</p>
% end
</div>
% else:
<form method="post" action="{{link('/do/tasks')}}" id="bulk">
<input type="hidden" name="token" value="{{token}}"><input type="hidden" name="back" value="{{here}}">
% for one in ("state", "pool", "name", "query"):
<input type="hidden" name="{{one}}" value="{{filters.get(one, "")}}">
% end
% if may_change:
<div class="row bulk">
  <span id="picked" class="quiet">With the selected:</span>
  <button name="action" value="cancel">Cancel</button>
  <button name="action" value="resubmit">Resubmit</button>
  <button name="action" value="remove" class="danger" data-confirm="Remove the selected tasks for good?">Remove</button>
% if state or pool or name or query:
  <label class="all"><input type="checkbox" name="all" value="1"> all that match, not only this page</label>
% end
</div>
% end
<div class="scroll"><table class="tasks" data-rows>
<thead><tr>
% if may_change:
<th><input type="checkbox" id="pick-all" class="scripted" aria-label="Select all rows">
% end
<th>Task<th>State<th>Arguments<th>Pool<th class="n">Attempt<th class="n">Submitted<th class="n">{{'Due' if state == 'scheduled' else 'Started'}}<th class="n">Took<th>Error</tr></thead>
<tbody>
% for task in page.value.items:
<tr id="{{task["id"]}}">
% if may_change:
  <td><input type="checkbox" name="ids" value="{{task["id"]}}" aria-label="Select {{task["id"]}}">
% end
  <th scope="row"><a href="{{link('/tasks/' + task['id'])}}">{{s.brief(task.get("name") or "unreadable", 60)}}</a><br><small><code>{{s.brief(task["uid"], 40)}}</code>\\
% for tag in (task.get("tags") or [])[:4]:
 <a class="tag" href="{{link('/tasks', state=state, query='tag:' + str(tag))}}">{{s.brief(tag, 24)}}</a>\\
% end
</small>
  <td><span class="state {{task["state"]}}">{{task["state"]}}</span>
% if task.get("progress") is not None:
    <progress max="100" value="{{task["progress"]}}">{{task["progress"]}} %</progress>
% end
  <td class="args"><code>{{s.call(task, 80)}}</code>
  <td>{{task["pool"]}}
  <td class="n">{{task.get("attempt") or 0}}
  <td class="n">{{!s.moment(task.get("submitted_at"), now)}}
  <td class="n">{{!s.moment(task.get("due_at") if state == "scheduled" else task.get("started_at"), now)}}
  <td class="n">{{s.duration(task["finished_at"] - task["started_at"]) if task.get("finished_at") and task.get("started_at") else s.NOTHING}}
  <td class="error">
% if task.get("error"):
    <b>{{s.brief(task["error"]["type"], 40)}}</b> {{s.brief(task["error"]["message"], 100)}}
% end
</tr>
% end
</tbody></table></div>
</form>
<p class="pager">
% if filters.get("cursor"):
<a class="button quiet" href="{{link('/tasks', state=state, pool=pool, name=name, query=query)}}">First page</a>
% end
% if page.value.cursor:
<a class="button" rel="next" href="{{link('/tasks', state=state, pool=pool, name=name, query=query, cursor=page.value.cursor)}}">Next page</a>
% end
<small>{{s.count(len(page.value.items))}} shown{{', ' + s.count(page.value.looked_at) + ' looked at' if page.value.looked_at > len(page.value.items) else ''}}</small></p>
% end
</div>

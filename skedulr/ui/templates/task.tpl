% rebase("layout.tpl")
% ended = task["state"] in ("succeeded", "dead", "cancelled", "skipped", "expired")
<div id="live"{{!'' if ended else ' data-every="1"'}}>
<div class="head">
  <div><p class="crumbs"><a href="{{link('/tasks')}}">Tasks</a> / <a href="{{link('/tasks', pool=task['pool'])}}">{{task["pool"]}}</a></p>
  <h1>{{task.get("name") or "Unreadable"}} <span class="state {{task["state"]}}">{{task["state"]}}</span></h1>
  <p><code class="id">{{task["id"]}}</code> <button type="button" class="quiet copy scripted" data-copy="{{task["id"]}}">Copy</button></p></div>
% if may_change:
  <form method="post" action="{{link('/do/tasks')}}" class="row">
    <input type="hidden" name="token" value="{{token}}"><input type="hidden" name="back" value="{{here}}"><input type="hidden" name="ids" value="{{task["id"]}}">
% if ended:
    <button class="main" name="action" value="resubmit">Resubmit</button>
    <a class="button" href="{{link('/submit', **{'from': task['id']})}}">Edit and submit anew</a>
    <button class="danger" name="action" value="remove" data-confirm="Remove this task and its record for good?">Remove</button>
% else:
    <button class="danger" name="action" value="cancel" data-confirm="Cancel this task?">Cancel</button>
% end
  </form>
% end
</div>
% if task.get("unreadable"):
% include("trouble.tpl", trouble=task["unreadable"])
% end
% if task.get("progress") is not None:
<section class="progress"><progress max="100" value="{{task["progress"]}}"></progress> <b>{{'%.0f' % task["progress"]}} %</b> {{task.get("note") or ""}}</section>
% end
% if task.get("error"):
<section class="failure"><h2>{{task["error"]["type"] or "Error"}}</h2><p>{{s.brief(task["error"]["message"], 2000)}}</p>
% if task["error"]["traceback"]:
<details open><summary>Traceback</summary><pre tabindex="0">{{task["error"]["traceback"][-s.CUT:]}}</pre></details>
% end
</section>
% end
% if task["state"] == "running":
<section id="stack"><h2>Where it is now</h2>
% if stack is None:
<p><a class="button" href="{{link('/tasks/' + task['id'], stack='1')}}#stack">Show its stack</a></p>
% elif stack.trouble:
% include("trouble.tpl", trouble=stack.trouble)
% elif stack.value is None:
<p class="quiet">Its process says nothing: something there computes without a pause, or it has ended by now.</p>
% else:
<pre tabindex="0">{{stack.value[-s.CUT:]}}</pre>
% end
</section>
% end
% if task.get("limit"):
<p class="quiet" id="limit">It waits for the {{task["limit"]["kind"] or ""}} limit <a href="{{link('/limits')}}">{{task["limit"]["name"] or ""}}</a>{{" of " + task["limit"]["key"] if task["limit"]["key"] else ""}}: parked, it holds up nobody and costs no worker and no attempt.</p>
% end
<dl class="facts">
  <div><dt>Submitted<dd>{{!s.moment(task.get("submitted_at"), now)}}</div>
  <div><dt>Due<dd>{{!s.moment(task.get("due_at"), now)}}</div>
  <div><dt>Started<dd>{{!s.moment(task.get("started_at"), now)}}</div>
  <div><dt>Finished<dd>{{!s.moment(task.get("finished_at"), now)}}</div>
  <div><dt>Took<dd>{{s.duration(task["finished_at"] - task["started_at"]) if task.get("finished_at") and task.get("started_at") else s.NOTHING}}</div>
  <div><dt>Attempt<dd>{{task.get("attempt") or 0}}{{'' if task.get("max_retries") is None else ' of ' + str(task["max_retries"] + 1)}}</div>
  <div><dt>Crashes<dd>{{task.get("crashes") or 0}}</div>
  <div><dt>Priority<dd>{{task.get("priority") or 0}}</div>
  <div><dt>Worker<dd><code>{{task.get("worker") or s.NOTHING}}</code></div>
% if task.get("workflow"):
  <div><dt>Workflow<dd><a href="{{link('/workflows/' + task['workflow'])}}">{{task["workflow"]}}</a></div>
% end
% if task.get("depends_on"):
  <div><dt>{{"Waits for" if task["state"] == "waiting" else "Waited for"}}<dd>
% for parent in task["depends_on"][:20]:
<a href="{{link('/tasks/' + parent)}}"><code>{{parent.partition("/")[2]}}</code></a>
% end
{{"and %d more" % (len(task["depends_on"]) - 20) if len(task["depends_on"]) > 20 else ""}}</div>
% end
% if task.get("key"):
  <div><dt>Key<dd>{{s.brief(task["key"])}}</div>
% end
% if task.get("tags"):
  <div><dt>Tags<dd>
% for tag in task["tags"]:
<a class="tag" href="{{link('/tasks', query='tag:' + str(tag))}}">{{s.brief(tag, 40)}}</a>
% end
</div>
% end
</dl>
<div class="columns">
<section><h2>Arguments</h2>
% if task.get("sealed"):
<p class="quiet">Sealed by a codec: what can be read of it is shown, not verified.</p>
% end
% for label, given in (("args", task.get("args")), ("kwargs", task.get("kwargs"))):
% if given:
% text, cut = s.value(given)
<h3>{{label}}</h3><pre tabindex="0">{{text}}</pre>
% if cut:
<p><small>{{s.count(cut)}} more characters: <a href="{{link('/api/tasks/' + task['id'])}}">all of it as JSON</a></small></p>
% end
% end
% end
% if not task.get("args") and not task.get("kwargs"):
<p class="quiet">None.</p>
% end
</section>
<section><h2>Result</h2>
% if task["state"] == "succeeded":
% text, cut = s.value(task.get("result"))
<pre tabindex="0">{{text}}</pre>
% if cut:
<p><small>{{s.count(cut)}} more characters: <a href="{{link('/api/tasks/' + task['id'])}}">all of it as JSON</a></small></p>
% end
% else:
<p class="quiet">{{'It has not ended yet.' if not ended else 'None: it ended as ' + task["state"] + '.'}}</p>
% end
</section>
</div>
<section><h2>What happened</h2>
% if attempts.trouble:
% include("trouble.tpl", trouble=attempts.trouble)
% else:
<ol class="line">
  <li><span class="dot"></span><b>submitted</b> {{!s.moment(task.get("submitted_at"), now)}}
% before = task.get("submitted_at")
% for one in attempts.value:
  <li class="{{one["state"]}}"><span class="dot"></span><b>{{one["state"]}}</b> {{!s.moment(one["finished_at"], now)}}
% if one["attempt"]:
   <small>attempt {{one["attempt"]}}{{', waited ' + s.duration(one["started_at"] - before) if one["started_at"] and before and one["started_at"] >= before else ''}}{{', ran ' + s.duration(one["finished_at"] - one["started_at"]) if one["started_at"] and one["finished_at"] else ''}}</small>
% end
% before = one["finished_at"] or before
% if one["worker"]:
   <small>on <code>{{one["worker"]}}</code></small>
% end
% if one["error"]:
   <p><b>{{s.brief(one["error"]["type"], 60)}}</b> {{s.brief(one["error"]["message"], 300)}}</p>
% if one["error"]["traceback"]:
   <details><summary>Traceback</summary><pre tabindex="0">{{one["error"]["traceback"][-s.CUT:]}}</pre></details>
% end
% end
% end
% if not ended:
  <li class="{{task["state"]}}"><span class="dot"></span><b>{{task["state"]}}</b>
% if task["state"] == "running":
   since {{!s.moment(task.get("started_at"), now)}} <small>on <code>{{task.get("worker")}}</code></small>
% elif task["state"] == "scheduled":
   due {{!s.moment(task.get("due_at"), now)}}
% end
% end
</ol>
% end
</section>
</div>

% rebase("layout.tpl")
% open = workflow["state"] in ("starting", "running")
<div id="live"{{!' data-every="1"' if open else ''}}>
<div class="head">
  <div><p class="crumbs"><a href="{{link('/workflows')}}">Workflows</a> / {{workflow["id"].partition("/")[0]}}</p>
  <h1>{{workflow["name"]}} <span class="state {{s.workflow_colour(workflow["state"])}}">{{workflow["state"]}}</span></h1>
  <p><code class="id">{{workflow["id"]}}</code> <button type="button" class="quiet copy scripted" data-copy="{{workflow["id"]}}">Copy</button></p></div>
% if may_change:
  <form method="post" action="{{link('/do/workflows/' + workflow['id'])}}" class="row">
    <input type="hidden" name="token" value="{{token}}"><input type="hidden" name="back" value="{{here}}">
% if open:
    <button class="danger" name="action" value="cancel" data-confirm="Cancel every step that has not ended?">Cancel</button>
% end
% if any(workflow["counts"].get(one) for one in ("dead", "expired", "cancelled")):
    <button class="main" name="action" value="resubmit">Resubmit what failed</button>
% end
  </form>
% end
</div>
<section class="progress"><progress max="{{workflow["total"]}}" value="{{workflow["ended"]}}"></progress> <b>{{s.count(workflow["ended"])}} of {{s.count(workflow["total"])}}</b> ended
% for state, count in sorted(workflow["counts"].items()):
 <span class="state {{state}}">{{s.count(count)}} {{state}}</span>
% end
</section>
<dl class="facts">
  <div><dt>Submitted<dd>{{!s.moment(workflow["submitted_at"], now)}}</div>
  <div><dt>Finished<dd>{{!s.moment(workflow["finished_at"], now)}}</div>
  <div><dt>Took<dd>{{s.duration(workflow["finished_at"] - workflow["submitted_at"]) if workflow["finished_at"] else s.NOTHING}}</div>
</dl>
% if drawing is not None:
<section id="graph"><h2>Graph</h2>
<div class="scroll graph" tabindex="0" role="group" aria-label="The steps and what each waits for; the table below says the same">
<svg viewBox="0 0 {{drawing.width}} {{drawing.height}}" width="{{drawing.width}}" height="{{drawing.height}}">
% for line in drawing.lines:
<path d="{{line}}"/>
% end
% for box in drawing.boxes:
<a href="{{link('/tasks/' + box.step["id"])}}" class="step {{box.step["state"]}}"><title>{{box.step["id"]}}: {{box.step["state"]}}</title><rect x="{{box.x}}" y="{{box.y}}" width="168" height="46" rx="8"/><text x="{{box.x + 12}}" y="{{box.y + 20}}">{{box.title}}</text><text class="below" x="{{box.x + 12}}" y="{{box.y + 36}}">{{box.note}}</text></a>
% end
</svg></div></section>
% end
<section><h2>Steps</h2>
<div class="scroll"><table><thead><tr><th>Step<th>Task<th>State<th>Started<th>Took<th>Waits for<th>Error</tr></thead><tbody>
% for step in workflow["steps"]:
<tr><th><a href="{{link('/tasks/' + step["id"])}}">{{names[step["id"]]}}</a>
% if step["kind"]:
 <small>{{step["kind"]}}</small>
% end
<td>{{step["task"] or s.NOTHING}}<td><span class="state {{step["state"]}}">{{step["state"]}}</span>
% if step["mapped"] and step["mapped"]["total"]:
 <small>{{s.count(step["mapped"]["counts"].get("succeeded", 0))}} of {{s.count(step["mapped"]["total"])}}</small>
% end
<td>{{!s.moment(step["started_at"], now)}}
<td>{{s.duration(step["finished_at"] - step["started_at"]) if step["started_at"] and step["finished_at"] else s.NOTHING}}
<td class="wrap">
% for parent in (step["depends_on"] or ())[:20]:
<a href="{{link('/tasks/' + parent)}}">{{names.get(parent, parent)}}</a>
% end
{{'' if len(step["depends_on"] or ()) <= 20 else '…'}}
<td class="error">
% if step["error"]:
<b>{{s.brief(step["error"]["type"], 60)}}</b> {{s.brief(step["error"]["message"], 200)}}
% end
</tr>
% end
</tbody></table></div>
% if steps > len(workflow["steps"]):
<p><small>The first {{s.count(len(workflow["steps"]))}} of {{s.count(steps)}} steps.</small></p>
% end
</section>
</div>

% rebase("layout.tpl")
<div class="head"><div><h1>Submit a task</h1><p class="quiet">The code need not be here: a pool that knows the name runs it.</p></div></div>
% if trouble:
<div class="trouble" role="alert">{{trouble}}</div>
% end
<form method="post" action="{{link('/do/submit')}}" class="sheet">
  <input type="hidden" name="token" value="{{token}}">
  <div class="row end"><label class="grow">Task <input name="name" list="names" required maxlength="200" value="{{fields["name"]}}" autocomplete="off" placeholder="send_email" data-fields="{{link('/submit')}}"></label>
  <button name="fields" value="1" formnovalidate class="quiet" title="Show a field for each parameter">Fields</button></div>
  <datalist id="names">
% for one in names[:300]:
  <option value="{{one}}"></option>
% end
  </datalist>
% if fields["name"] and known is None:
  <p class="quiet">No process has published a task of this name. It can be submitted all the same: it waits until one knows it.</p>
% end
% if parameters:
  <input type="hidden" name="signed" value="1">
  <div class="grid">
% for one in parameters:
    <label><span>{{one.name}}\\
% if one.kind in ("args", "kwargs"):
 <small>{{"more, as a JSON list" if one.kind == "args" else "more, as a JSON object"}}</small>\\
% elif one.annotation:
 <small>{{one.annotation}}</small>\\
% end
</span><input name="p:{{one.name}}" value="{{fields.get("p:" + one.name, "")}}" placeholder="{{one.default if one.default is not None else ""}}"{{!' required' if one.required else ''}} autocomplete="off"></label>
% end
  </div>
  <p class="quiet">Numbers, lists and objects as JSON; a field left empty is not passed. <a href="{{link('/submit', name=fields['name'], json='1')}}">As JSON instead</a></p>
% else:
  <div class="two">
    <label><span>Positional arguments <small>JSON list</small></span><textarea name="args" rows="5" spellcheck="false" data-json>{{fields["args"]}}</textarea></label>
    <label><span>Keyword arguments <small>JSON object</small></span><textarea name="kwargs" rows="5" spellcheck="false" data-json>{{fields["kwargs"]}}</textarea></label>
  </div>
% end
  <details{{!' open' if any(fields.get(one) for one in ("pool", "priority", "delay", "max_retries", "timeout", "key", "tags", "id")) else ''}}><summary>Options</summary>
  <div class="grid">
    <label>Pool <input name="pool" list="pools" value="{{fields.get("pool", "")}}" placeholder="{{known.pool if known is not None else "as the task says"}}" maxlength="64"></label>
    <datalist id="pools">
% for one in (layout or {}).get("pools", []):
    <option value="{{one["name"]}}"></option>
% end
    </datalist>
    <label><span>Priority <small>-100 to 100</small></span><input name="priority" type="number" min="-100" max="100" value="{{fields.get("priority", "")}}" placeholder="0"></label>
    <label><span>Delay <small>seconds</small></span><input name="delay" type="number" min="0" step="any" value="{{fields.get("delay", "")}}" placeholder="none"></label>
    <label>Retries <input name="max_retries" type="number" min="0" value="{{fields.get("max_retries", "")}}" placeholder="as the task says"></label>
    <label><span>Time limit <small>seconds</small></span><input name="timeout" type="number" min="0" step="any" value="{{fields.get("timeout", "")}}" placeholder="as the task says"></label>
    <label><span>Tags <small>commas between</small></span><input name="tags" value="{{fields.get("tags", "")}}"></label>
    <label>Key <input name="key" value="{{fields.get("key", "")}}"></label>
    <label><span>Id <small>safe against repeats</small></span><input name="id" value="{{fields.get("id", "")}}" placeholder="made for you"></label>
  </div></details>
  <div class="row"><button class="main"{{!'' if may_change else ' disabled'}}>Submit</button></div>
</form>

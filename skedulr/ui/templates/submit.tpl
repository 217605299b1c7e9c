% rebase("layout.tpl")
<div class="head"><div><h1>Submit a task</h1><p class="quiet">The code need not be here: a pool that knows the name runs it.</p></div></div>
% if trouble:
<div class="trouble" role="alert">{{trouble}}</div>
% end
<form method="post" action="{{link('/do/submit')}}" class="sheet">
  <input type="hidden" name="token" value="{{token}}">
  <label>Task <input name="name" list="names" required maxlength="200" value="{{fields["name"]}}" autocomplete="off" placeholder="send_email"></label>
  <datalist id="names">
% for one in names[:300]:
  <option value="{{one}}"></option>
% end
  </datalist>
  <div class="two">
    <label>Positional arguments <small>JSON list</small><textarea name="args" rows="5" spellcheck="false" data-json>{{fields["args"]}}</textarea></label>
    <label>Keyword arguments <small>JSON object</small><textarea name="kwargs" rows="5" spellcheck="false" data-json>{{fields["kwargs"]}}</textarea></label>
  </div>
  <details{{!' open' if any(fields.get(one) for one in ("pool", "priority", "delay", "max_retries", "timeout", "key", "tags", "id")) else ''}}><summary>Options</summary>
  <div class="grid">
    <label>Pool <input name="pool" list="pools" value="{{fields.get("pool", "")}}" placeholder="as the task says" maxlength="64"></label>
    <datalist id="pools">
% for one in (layout or {}).get("pools", []):
    <option value="{{one["name"]}}"></option>
% end
    </datalist>
    <label>Priority <small>-100 to 100</small><input name="priority" type="number" min="-100" max="100" value="{{fields.get("priority", "")}}" placeholder="0"></label>
    <label>Delay <small>seconds</small><input name="delay" type="number" min="0" step="any" value="{{fields.get("delay", "")}}" placeholder="none"></label>
    <label>Retries <input name="max_retries" type="number" min="0" value="{{fields.get("max_retries", "")}}" placeholder="as the task says"></label>
    <label>Time limit <small>seconds</small><input name="timeout" type="number" min="0" step="any" value="{{fields.get("timeout", "")}}" placeholder="as the task says"></label>
    <label>Tags <small>commas between</small><input name="tags" value="{{fields.get("tags", "")}}"></label>
    <label>Key <input name="key" value="{{fields.get("key", "")}}"></label>
    <label>Id <small>to be safe against repeats</small><input name="id" value="{{fields.get("id", "")}}" placeholder="made for you"></label>
  </div></details>
  <div class="row"><button class="main"{{!'' if may_change else ' disabled'}}>Submit</button></div>
</form>

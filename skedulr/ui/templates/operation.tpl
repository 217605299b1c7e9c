% rebase("layout.tpl")
% running = operation["state"] == "running"
<div id="live"{{!' data-every="1"' if running else ''}}>
<div class="head"><div><p class="crumbs"><a href="{{link('/tasks')}}">Tasks</a></p><h1>{{operation["action"]}} <span class="state {{'running' if running else 'succeeded' if operation["state"] == 'finished' else 'dead'}}">{{operation["state"]}}</span></h1>
<p class="quiet">by {{operation["by"]}}, started {{!s.moment(operation["started_at"], now)}}{{!', ended ' + s.moment(operation["finished_at"], now) if operation["finished_at"] else ''}}</p></div></div>
<section class="progress"><progress max="{{max(1, operation["total"])}}" value="{{operation["done"]}}"></progress>
<p><b>{{s.count(operation["done"])}}</b> of {{s.count(operation["total"])}} looked at, <b>{{s.count(operation["changed"])}}</b> changed.</p></section>
% if operation["error"]:
<div class="trouble" role="alert">{{operation["error"]}}</div>
% end
<dl class="facts">
% for name, value in operation["selection"].items():
% if value:
<div><dt>{{name}}<dd>{{value}}</div>
% end
% end
</dl>
<p class="quiet">This page may be closed: the work goes on, and is taken up by another master should this one end.</p>
</div>

% for one in (layout or {}).get("operations", [])[:3]:
<p class="strip" id="operation-{{one["id"]}}"><a href="{{link('/operations/' + one['id'])}}"><b>{{one["action"]}}</b> {{s.count(one["done"])}} of {{s.count(one["total"])}}</a> <progress max="{{max(1, one["total"])}}" value="{{one["done"]}}"></progress></p>
% end

<section id="checkup"><h2>Doctor</h2>
% one = checkup.value
% if checkup.trouble:
% include("trouble.tpl", trouble=checkup.trouble)
% elif one is None:
<p>Looks at everything that is stored for states that no script of Skedulr leaves behind: after a failover that lost writes, or after somebody changed keys by hand.</p>
% elif one["state"] == "running":
<div class="progress"><progress max="{{max(1, one["total"])}}" value="{{min(one["done"], max(1, one["total"]))}}"></progress>
<p><b>{{s.count(one["done"])}}</b> of about {{s.count(one["total"])}} looked at, started {{!s.moment(one["started_at"], now)}} by {{one["by"]}}.</p></div>
% else:
% if one["state"] == "lost":
<div class="finding warn"><b>The last examination was cut short:</b> its master ended. Start it again.</div>
% elif one["state"] == "failed":
<div class="finding bad"><b>The last examination failed.</b> {{one["error"]}}</div>
% elif one["count"]:
<div class="finding bad"><b>{{s.count(one["count"])}} broken.</b> {{s.count(one["mended"])}} were mended.</div>
% else:
<div class="finding ok"><b>Nothing is broken.</b> {{s.count(one["done"])}} looked at{{', ' + s.count(one["mended"]) + ' mended' if one["mended"] else ''}}.</div>
% end
<p class="quiet">Examined {{!s.moment(one["started_at"], now)}} by {{one["by"]}}.</p>
% if one["findings"]:
<div class="scroll" tabindex="0" role="group" aria-label="What was found"><table><thead><tr><th>Pool<th>Kind<th>About<th>What</tr></thead><tbody>
% for found in one["findings"]:
<tr><td>{{found["pool"] or s.NOTHING}}<td>{{found["kind"]}}<th scope="row"><code>{{s.brief(found["uid"], 80)}}</code><td>{{s.brief(found["text"], 300)}}</tr>
% end
</tbody></table></div>
% end
% end
% if may_change and not (one and one["state"] == "running"):
<form method="post" action="{{link('/do/doctor')}}" class="row">
<input type="hidden" name="token" value="{{token}}"><input type="hidden" name="back" value="{{here}}">
<button class="main">Examine</button>
% if one and one["findings"]:
<button name="fix" value="1" class="danger" data-confirm="Mend what can be mended? A task is given back rather than lost: one that ran without a lease may run twice.">Mend</button>
% end
</form>
% end
</section>

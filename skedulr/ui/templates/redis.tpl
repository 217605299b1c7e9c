% rebase("layout.tpl")
<div class="head"><h1>Redis</h1></div>
<div id="live" data-every="5">
% if view.trouble:
% include("trouble.tpl", trouble=view.trouble)
% else:
% v = view.value
% for finding in v.findings:
<div class="finding {{finding.level}}"><b>{{finding.title}}</b> {{finding.advice}}</div>
% end
% if not v.findings and v.info:
<div class="finding ok"><b>Nothing is wrong.</b> Memory, persistence and role are as they should be.</div>
% end
% for one in v.refused:
<div class="finding warn"><b>Not shown:</b> {{one}}</div>
% end
<div class="cards">
% for section, rows in facts(v):
<section><h2>{{section}}</h2><dl class="list">
% for label, value, kind in rows:
<div><dt>{{label}}<dd>\\
% if value is None:
{{s.NOTHING}}\\
% elif kind == "size":
{{s.size(value)}}\\
% elif kind == "duration":
{{s.duration(value)}}\\
% elif kind == "moment":
{{!s.moment(value, now)}}\\
% elif kind == "count":
{{s.count(value)}}\\
% elif kind == "percent":
{{"%.1f %%" % (100 * value)}}\\
% elif kind == "ratio":
{{"%.2f" % value}}\\
% else:
{{value}}\\
% end
</div>
% end
</dl></section>
% end
</div>
% include("checkup.tpl")
<div class="columns">
<section><h2>Where the server's time goes</h2>
% if v.commands:
<div class="scroll" tabindex="0" role="group" aria-label="Commands"><table><thead><tr><th>Command<th class="n">Calls<th class="n">Mean<th class="n">Together</tr></thead><tbody>
% for name, calls, mean_us in v.commands:
<tr><th scope="row"><code>{{name}}</code><td class="n">{{s.count(calls)}}<td class="n">{{s.duration(mean_us / 1e6)}}<td class="n">{{s.duration(mean_us * calls / 1e6)}}</tr>
% end
</tbody></table></div>
% else:
<p class="quiet">Not known.</p>
% end
</section>
<section><h2>Slow log</h2>
% if v.slow:
<div class="scroll" tabindex="0" role="group" aria-label="Slow log"><table><thead><tr><th class="n">When<th class="n">Took<th>What</tr></thead><tbody>
% for one in v.slow:
<tr><td class="n">{{!s.moment(one.at_s, now)}}<td class="n">{{s.duration(one.took_s)}}<td><code>{{one.what}}</code></tr>
% end
</tbody></table></div>
% else:
<div class="empty"><p>No command was slow (<code>slowlog-log-slower-than</code>, 10 ms unless set).</p></div>
% end
</section>
</div>
% end
</div>

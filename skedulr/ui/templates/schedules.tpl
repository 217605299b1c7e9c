% rebase("layout.tpl")
<div class="head"><div><h1>Schedules</h1><p class="quiet">What runs by itself, when next, and how the last runs went.</p></div></div>
<div id="live"{{!' data-every="5"' if not cursor else ''}}>
% if page.trouble:
% include("trouble.tpl", trouble=page.trouble)
% elif not page.value[0]:
<div class="empty"><p><b>Nothing is scheduled.</b></p><p>In code: <code>@skedulr.cron("0 9 * * mon-fri", tz="Europe/Paris")</code> above <code>@skedulr.task</code>; at once: <code>skedulr.schedule_recurring(poll, 10, name="poll")</code>.</p></div>
% else:
<section><div class="scroll"><table data-rows>
<thead><tr><th>Schedule<th>Task<th>Pool<th>When<th class="n">Next<th>Last runs<th class="n">Last<th class="n">Fired<th class="n">Skipped<th><span class="hidden">Actions</span></tr></thead>
<tbody>
% for one, runs in page.value[0]:
<tr id="schedule-{{one.name}}"><th scope="row">{{one.name}}
% if one.paused:
  <span class="state paused">paused</span>
% end
% if one.ended:
  <span class="state">ended</span>
% end
% if one.declared:
  <span class="state" title="Declared in code by @every or @cron">code</span>
% end
% if one.error:
  <br><small class="bad">{{s.brief(one.error)}}</small>
% end
  <td><a href="{{link('/tasks', name=one.task, pool=one.pool)}}">{{s.brief(one.task or "unreadable", 60)}}</a>
  <td>{{one.pool}}
  <td><code>{{one.spec if one.kind == "cron" else s.every(float(one.spec)) if one.spec else ""}}</code>
% if one.tz and one.tz != "UTC":
    <small>{{one.tz}}</small>
% end
  <td class="n">{{!s.moment(one.next_due, now)}}
  <td class="runs">\\
% for run in reversed(runs[:10]):
<a href="{{link('/tasks/' + run['id'])}}" class="run {{run["state"]}}" title="{{run["state"]}}"><span class="hidden">{{run["state"]}}</span></a>\\
% end
  <td class="n">{{!s.moment(one.last_due, now)}}
  <td class="n">{{s.count(one.fired)}}
  <td class="n">{{s.count(one.skipped)}}
  <td class="actions">
% if may_change:
    <form method="post" class="row">
      <input type="hidden" name="token" value="{{token}}"><input type="hidden" name="back" value="{{here}}">
      <button formaction="{{link('/do/schedules/' + one.name + '/run')}}">Run now</button>
% if one.paused:
      <button formaction="{{link('/do/schedules/' + one.name + '/resume')}}">Resume</button>
% else:
      <button class="quiet" formaction="{{link('/do/schedules/' + one.name + '/pause')}}">Pause</button>
% end
      <button class="quiet" formaction="{{link('/do/schedules/' + one.name + '/remove')}}" data-confirm="Remove the schedule {{one.name}}?{{' Its code declares it again at the next deployment.' if one.declared else ''}}">Remove</button>
    </form>
% end
</tr>
% end
</tbody></table></div></section>
<p class="pager">
% if cursor:
<a class="button quiet" href="{{link('/schedules')}}">First page</a>
% end
% if page.value[1]:
<a class="button" rel="next" href="{{link('/schedules', cursor=page.value[1])}}">Next page</a>
% end
</p>
% end
</div>
<section class="try"><h2>Try a cron line</h2>
<form method="get" action="{{link('/schedules')}}" class="filters" data-preview>
  <label>Cron line <input name="line" value="{{line}}" placeholder="0 9 * * mon-fri" maxlength="200" autocomplete="off" spellcheck="false"></label>
  <label>Time zone <input name="tz" value="{{zone}}" maxlength="64" autocomplete="off" list="zones"></label>
  <datalist id="zones"><option value="UTC"></option><option value="Europe/Paris"></option><option value="America/New_York"></option><option value="Asia/Tokyo"></option></datalist>
  <button class="main">Preview</button>
</form>
<div id="preview" aria-live="polite">
% if ticks.trouble:
<p class="bad">{{ticks.trouble}}</p>
% elif ticks.value is not None:
<ol class="ticks">
% for tick in ticks.value:
<li><b>{{tick.strftime("%a %d %b %Y %H:%M:%S %Z")}}</b> <small>{{!s.moment(tick.timestamp(), now)}}</small>
% end
</ol>
% if not ticks.value:
<p class="bad">It never comes.</p>
% end
% else:
<p class="quiet">Minute, hour, day of month, month, day of week. The next times show here as you type.</p>
% end
</div></section>

% rebase("layout.tpl")
<div id="live" data-every="15">
% include("operations_strip.tpl")
<h1 class="hidden">Overview</h1>
% if stats.trouble:
% include("trouble.tpl", trouble=stats.trouble)
% else:
% v = stats.value
% workers = sum(pool["workers"] for pool in v["pools"])
<section class="totals" aria-label="Totals">
  <div><b data-live="throughput" data-as="rate">{{s.rate(v["throughput"])}}</b><span>tasks/s</span></div>
  <div><b data-live="queued">{{s.count(v["queued"])}}</b><span>queued</span></div>
  <div><b data-live="running">{{s.count(v["running"])}}</b><span>running on {{s.count(workers)}} workers</span></div>
  <div><b data-live="scheduled">{{s.count(v["scheduled"])}}</b><span>scheduled</span></div>
% if v["waiting"]:
  <div><b data-live="waiting">{{s.count(v["waiting"])}}</b><span>waiting</span></div>
% end
  <div><b data-live="predicted_wait" data-as="about">{{s.about(v["predicted_wait"])}}</b><span>predicted wait</span></div>
  <div class="{{'bad' if v['dead'] else ''}}"><a href="{{link('/dead')}}"><b data-live="dead">{{s.count(v["dead"])}}</b><span>dead</span></a></div>
  <div><b data-live="succeeded">{{s.count(v["succeeded"])}}</b><span>succeeded in all</span></div>
  <div><b data-live="failed">{{s.count(v["failed"])}}</b><span>failed attempts</span></div>
% alive = [node for node in (nodes.value or []) if not node["silent"]]
  <div><a href="{{link('/nodes')}}"><b>{{s.count(len(alive))}}</b><span>{{'node' if len(alive) == 1 else 'nodes'}}, {{s.count(sum(len(node["children"]) for node in alive))}} processes</span></a></div>
</section>

<section class="charts" id="charts" aria-label="Charts" im-preserve="true">
  <div class="chart-head">
    <h2>Throughput and latency</h2>
    <label>Pool <select id="chart-pool"><option value="">all</option>
% for pool in v["pools"]:
<option{{!' selected' if pool["name"] == chosen else ''}}>{{pool["name"]}}</option>
% end
</select></label>
    <span class="switch" role="group" aria-label="Span"><button type="button" data-span="60m" aria-pressed="{{'false' if span == '24h' else 'true'}}">60 min</button><button type="button" data-span="24h" aria-pressed="{{'true' if span == '24h' else 'false'}}">24 h</button></span>
  </div>
  <p class="quiet now" id="chart-now">&nbsp;</p>
  <div class="three"><figure><figcaption>Tasks, per second</figcaption><div class="plot" id="plot-rate"></div></figure>
  <figure><figcaption>How long they waited for a worker</figcaption><div class="plot" id="plot-wait"></div></figure>
  <figure><figcaption>How long they ran</figcaption><div class="plot" id="plot-run"></div></figure></div>
</section>

<section>
  <div class="head"><h2>Pools</h2>
% if may_change and len(v["pools"]) > 1:
    <form method="post" class="row" data-confirm="Pause or resume every pool?">
      <input type="hidden" name="token" value="{{token}}"><input type="hidden" name="back" value="{{here}}">
      <button class="quiet" formaction="{{link('/do/pools/pause')}}">Pause all</button><button class="quiet" formaction="{{link('/do/pools/resume')}}">Resume all</button>
    </form>
% end
  </div>
% if not v["pools"]:
  <div class="empty"><p><b>No pool has been used yet.</b></p><p>Start one: <code>skedulr-master --pools default=10 yourmodule</code>, then submit a task.</p></div>
% else:
  <div class="scroll">
  <table class="pools">
  <thead><tr><th>Pool<th class="n">Tasks/s<th class="wide">Last hour<th class="n">Predicted wait<th class="wide">Waits, last hour<th class="n">Queued<th class="n">Oldest<th class="n">Running<th class="n">Workers<th class="n">Scheduled<th class="n">Dead<th class="n wider">Succeeded<th class="n wider">Failed<th><span class="hidden">Actions</span></tr></thead>
  <tbody>
% for pool in v["pools"]:
% name = pool["name"]
% mark = "pools." + name + "."
  <tr id="pool-{{name}}">
    <th scope="row"><a href="{{link('/tasks', pool=name)}}">{{name}}</a>
      <span class="state paused" data-show="{{mark}}paused"{{!'' if pool["paused"] else ' hidden'}}>paused</span>
% if pool["unserved"]:
      <span class="state warn" title="No live node serves this pool: its tasks wait">unserved</span>
% end
% if pool["manual"]:
      <span class="state" title="The number of workers was set by hand">manual</span>
% elif pool["min"] != pool["max"]:
      <span class="state" title="Tuned between {{pool["min"]}} and {{pool["max"]}} workers">tuned {{pool["min"]}}..{{pool["max"]}}</span>
% end
    <td class="n" data-live="{{mark}}throughput" data-as="rate">{{s.rate(pool["throughput"])}}
% spark = (sparks.value or {}).get(name)
    <td class="wide"><a href="{{link('/', pool=name)}}#charts" data-chart="{{name}}" title="In the charts; red: dead" aria-label="{{name}} in the charts">{{!s.sparkline(spark.ended, spark.dead) if spark else ''}}</a>
    <td class="n" data-live="{{mark}}predicted_wait" data-as="duration">{{s.duration(pool["predicted_wait"])}}
    <td class="wide"><a href="{{link('/', pool=name)}}#charts" data-chart="{{name}}" title="The time that 95 % waited less than, at most {{s.millis(max(spark.wait_ms) if spark else None)}}" aria-label="Waits of {{name}} in the charts">{{!s.sparkline(spark.wait_ms) if spark else ''}}</a>
    <td class="n"><a href="{{link('/tasks', pool=name, state='queued')}}" data-live="{{mark}}queued">{{s.count(pool["queued"])}}</a>
    <td class="n" data-live="{{mark}}oldest_age" data-as="duration">{{s.duration(pool["oldest_age"])}}
    <td class="n"><a href="{{link('/tasks', pool=name, state='running')}}" data-live="{{mark}}running">{{s.count(pool["running"])}}</a>
    <td class="n workers">
% size = (sizes.value or {}).get(name)
% if may_change and size is not None and not pool["unserved"]:
      <form method="post" action="{{link('/do/pools/' + name + '/scale')}}" class="scale">
        <input type="hidden" name="token" value="{{token}}"><input type="hidden" name="back" value="{{here}}">
        <button name="workers" value="{{max(0, size - 1)}}" title="One worker fewer in each process" aria-label="{{name}}: one worker fewer"{{!'' if size else ' disabled'}}>−</button>
        <span data-live="{{mark}}workers">{{s.count(pool["workers"])}}</span>
        <button name="workers" value="{{size + 1}}" title="One worker more in each process" aria-label="{{name}}: one worker more">+</button>
% if pool["manual"]:
        <button name="workers" value="reset" class="quiet" title="As many as the master was started with">reset</button>
% end
      </form>
% else:
      <span data-live="{{mark}}workers">{{s.count(pool["workers"])}}</span>
% end
      <meter min="0" max="{{max(1, pool['workers'])}}" value="{{min(pool['running'], max(1, pool['workers']))}}" data-meter="{{mark}}running" title="running of workers">{{pool["running"]}} of {{pool["workers"]}}</meter>
    <td class="n"><a href="{{link('/tasks', pool=name, state='scheduled')}}" data-live="{{mark}}scheduled">{{s.count(pool["scheduled"])}}</a>
    <td class="n {{'bad' if pool['dead'] else ''}}"><a href="{{link('/dead', pool=name)}}" data-live="{{mark}}dead">{{s.count(pool["dead"])}}</a>
    <td class="n wider" data-live="{{mark}}succeeded">{{s.count(pool["succeeded"])}}
    <td class="n wider" data-live="{{mark}}failed">{{s.count(pool["failed"])}}
    <td class="actions">
% if may_change:
      <form method="post" class="row">
        <input type="hidden" name="token" value="{{token}}"><input type="hidden" name="back" value="{{here}}">
% if pool["paused"]:
        <button formaction="{{link('/do/pools/' + name + '/resume')}}">Resume</button>
% else:
        <button class="quiet" formaction="{{link('/do/pools/' + name + '/pause')}}">Pause</button>
% end
        <button class="quiet" formaction="{{link('/do/pools/' + name + '/purge')}}" data-confirm="Remove every task of pool {{name}} that has not started?">Purge</button>
      </form>
% end
  </tr>
% end
  </tbody>
  </table>
  </div>
% end
</section>
% end

<div class="columns">
<div>
<section id="failing">
  <h2>Failures by task <small>attempts in the last hour</small></h2>
% if failing.trouble:
% include("trouble.tpl", trouble=failing.trouble)
% elif not failing.value:
  <div class="empty"><p><b>No attempt failed in the last hour.</b></p></div>
% else:
  <div class="scroll"><table class="dead">
  <thead><tr><th>Task<th>Pool<th class="n">Failed<th class="n">Of its runs<th class="wide">Last hour<th class="n">Since ever</tr></thead>
  <tbody>
% for row in failing.value[:10]:
  <tr><th scope="row"><a href="{{link('/tasks', state='dead', name=row.name, pool=row.pool)}}">{{s.brief(row.name, 60)}}</a><td>{{row.pool}}<td class="n bad">{{s.count(row.failed)}}<td class="n">{{s.share(row.failed, row.runs)}}<td class="wide">{{!s.sparkline(row.points)}}<td class="n">{{s.count(row.total)}}</tr>
% end
  </tbody></table></div>
% if len(failing.value) > 10:
  <p><small>and {{s.count(len(failing.value) - 10)}} more</small></p>
% end
% end
</section>
<section>
  <h2>Runs by task <small>since ever</small></h2>
% if names.trouble:
% include("trouble.tpl", trouble=names.trouble)
% elif not names.value:
  <div class="empty"><p>Nothing has ended yet. Durations and failures of each task show here.</p></div>
% else:
  <div class="scroll"><table>
  <thead><tr><th>Task<th>Pool<th class="n">Runs<th class="n">Failed<th class="n">p50<th class="n">p95<th class="n">p99</tr></thead>
  <tbody>
% for row in sorted(names.value, key=lambda row: -row["runs"])[:12]:
  <tr><th scope="row"><a href="{{link('/tasks', name=row['name'], pool=row['pool'])}}">{{s.brief(row["name"], 60)}}</a><td>{{row["pool"]}}<td class="n">{{s.count(row["runs"])}}<td class="n {{'bad' if row['failed'] else ''}}">{{s.count(row["failed"])}}<td class="n">{{s.millis(row["p50_ms"])}}<td class="n">{{s.millis(row["p95_ms"])}}<td class="n">{{s.millis(row["p99_ms"])}}</tr>
% end
  </tbody></table></div>
% end
</section>
</div>
<div>
<section id="lead">
  <h2>Leader and tuning</h2>
% if lead.trouble:
% include("trouble.tpl", trouble=lead.trouble)
% elif lead.value is None:
  <p>No node leads now. Tuning and cluster-wide hooks rest; everything else goes on.</p>
% else:
  <p>Node <a href="{{link('/nodes')}}#node-{{lead.value["node"]}}"><code>{{lead.value["node"]}}</code></a> leads{{!' since ' + s.moment(lead.value["since"], now) if lead.value["since"] else ''}} (term {{lead.value["term"]}}){{': ' + lead.value["why"] if lead.value["why"] else ''}}.</p>
% end
% if decisions.trouble:
% include("trouble.tpl", trouble=decisions.trouble)
% elif not decisions.value:
  <p class="quiet">It has sized no pool yet: pools given as <code>NAME=MIN..MAX</code> are tuned.</p>
% else:
  <ul class="plain">
% for one in decisions.value:
    <li><small>{{!s.moment(one.get("at"), now)}}</small> <b>{{one.get("pool")}}</b> {{one.get("kind")}}, {{one.get("from")}} to {{one.get("to")}} workers <small>{{s.brief(one.get("why"), 200)}}</small>
% end
  </ul>
  <p><a href="{{link('/nodes')}}#decisions">All decisions</a></p>
% end
</section>
<section>
  <h2>Nodes</h2>
% if nodes.trouble:
% include("trouble.tpl", trouble=nodes.trouble)
% elif not nodes.value:
  <div class="empty"><p><b>No node is running.</b> Tasks are stored and wait for <code>skedulr-master</code>.</p></div>
% else:
  <ul class="plain">
% for node in nodes.value:
    <li><a href="{{link('/nodes')}}">{{node.get("host")}}</a> <code>{{node.get("id")}}</code>
% if node.get("leader"):
      <span class="state ok">leader</span>
% end
      <span class="state {{'warn' if node['silent'] else 'ok'}}">{{'silent' if node['silent'] else 'alive'}}</span>
      <small>{{len(node["children"])}} processes, up {{s.duration(now - (node.get("started_at") or now))}}</small>
% end
  </ul>
% end
</section>
<section>
  <h2>Last changes</h2>
% if changes.trouble:
% include("trouble.tpl", trouble=changes.trouble)
% elif not changes.value:
  <div class="empty"><p>Whoever pauses, cancels, resubmits or removes something here is noted.</p></div>
% else:
  <ul class="plain">
% for change in changes.value:
    <li><small>{{!s.moment(change["at"], now)}}</small> <b>{{change["what"]}}</b> {{s.brief(change["target"], 80)}} <small>by {{change["who"]}}</small>
% end
  </ul>
  <p><a href="{{link('/changes')}}">All changes</a></p>
% end
</section>
</div>
</div>
</div>
<link rel="stylesheet" href="{{asset('vendor/uplot.css')}}">
<script src="{{asset('vendor/uplot.js')}}" defer></script>
<script src="{{asset('charts.js')}}" defer></script>

% rebase("layout.tpl")
<div class="head"><h1>Nodes</h1></div>
<div id="live" data-every="5">
% if nodes.trouble:
% include("trouble.tpl", trouble=nodes.trouble)
% elif not nodes.value:
<div class="empty"><p><b>No node is running.</b></p><p>Tasks are stored and wait. Start one on any machine that reaches this Redis: <code>skedulr-master --pools default=10 yourmodule</code></p></div>
% else:
% for node in nodes.value:
<section class="node" id="node-{{node.get("id")}}">
  <div class="head"><h2>{{node.get("host")}} <code>{{node.get("id")}}</code>
% if node.get("leader"):
  <span class="state ok">leader</span>
% end
  <span class="state {{'warn' if node['silent'] else 'ok'}}">{{'silent' if node['silent'] else 'alive'}}</span>
% if node.get("drained"):
  <span class="state warn">drained</span>
% end
  </h2>
  <p class="quiet">pid {{node.get("pid")}}, Skedulr {{node.get("version")}}, started {{!s.moment(node.get("started_at"), now)}}{{', ' + '%.1f' % node["free_cores"] + ' cores free' if node.get("free_cores") is not None else ''}}{{', ' + '%.0f' % (100 * node["free_memory"]) + ' % of memory free' if node.get("free_memory") is not None else ''}}, last word {{!s.moment(node.get("beat_at"), now)}}</p>
% if may_change and not node["silent"]:
  <form method="post" action="{{link('/do/nodes/' + str(node.get('id')) + ('/undrain' if node.get('drained') else '/drain'))}}">
  <input type="hidden" name="token" value="{{token}}"><input type="hidden" name="back" value="{{here}}">
% if node.get("drained"):
  <button class="main">Claim again</button>
% else:
  <button data-confirm="Have this node claim nothing more? What runs there ends.">Drain</button>
% end
  </form>
% end
  </div>
  <div class="scroll" tabindex="0" role="group" aria-label="Processes of {{node.get("id")}}"><table>
  <thead><tr><th>Pool<th class="n">Process<th class="n">Busy<th class="n">Workers<th class="wide">Load<th class="n" title="Of one core, lately">CPU<th class="n">Hub lag<th class="n">Memory<th class="n" title="Open sockets: to Redis, and what the tasks opened">Connections</tr></thead>
  <tbody>
% for child in node["children"]:
  <tr><th scope="row">{{child.get("pool")}}<td class="n">{{child.get("pid")}}<td class="n">{{child.get("busy")}}<td class="n">{{child.get("workers")}}<td class="wide"><meter min="0" max="{{max(1, child.get('workers') or 1)}}" value="{{child.get('busy') or 0}}">{{child.get("busy")}}</meter><td class="n">{{'%.0f %%' % (100 * child["cpu"]) if child.get("cpu") is not None else s.NOTHING}}<td class="n">{{s.millis(child.get("lag_ms"))}}<td class="n">{{s.size(child.get("rss"))}}<td class="n">{{s.count(child.get("sockets"))}}</tr>
% end
  </tbody></table></div>
% mine = [task for task in (running.value or []) if str(task.get("worker") or "").startswith(str(node.get("id")) + ".")]
% if mine:
  <h3>Running now</h3>
  <div class="scroll"><table class="tasks" data-rows><thead><tr><th>Task<th>Pool<th>Arguments<th class="n">Running for<th>Progress<th>Stack</tr></thead><tbody>
% for task in mine[:50]:
  <tr><th scope="row"><a href="{{link('/tasks/' + task['id'])}}">{{s.brief(task.get("name"), 60)}}</a><td>{{task["pool"]}}<td class="args"><code>{{s.call(task, 80)}}</code><td class="n">{{s.duration(now - task["started_at"]) if task.get("started_at") else s.NOTHING}}<td>
% if task.get("progress") is not None:
<progress max="100" value="{{task["progress"]}}"></progress> {{'%.0f' % task["progress"]}} % {{s.brief(task.get("note") or "", 60)}}
% end
<td><a href="{{link('/tasks/' + task['id'], stack='1')}}#stack">show</a></tr>
% end
  </tbody></table></div>
% end
</section>
% end
% end
<section id="decisions">
  <h2>Leader and tuning</h2>
% if lead.trouble:
% include("trouble.tpl", trouble=lead.trouble)
% elif lead.value is None:
  <p>No node leads now. Tuning and cluster-wide hooks rest; everything else goes on.</p>
% else:
  <p>Node <code>{{lead.value["node"]}}</code> leads{{!' since ' + s.moment(lead.value["since"], now) if lead.value["since"] else ''}} (term {{lead.value["term"]}}){{': ' + lead.value["why"] if lead.value["why"] else ''}}.</p>
% end
% if decisions.trouble:
% include("trouble.tpl", trouble=decisions.trouble)
% elif not decisions.value:
  <p class="quiet">It has sized no pool yet: pools given as <code>NAME=MIN..MAX</code> are tuned.</p>
% else:
  <div class="scroll" tabindex="0" role="group" aria-label="Decisions"><table><thead><tr><th>When<th>Pool<th>What<th class="n">Workers<th>Why</tr></thead><tbody>
% for one in decisions.value:
  <tr><td>{{!s.moment(one.get("at"), now)}}<th scope="row">{{one.get("pool")}}<td>{{one.get("kind")}}<td class="n">{{one.get("from")}} to {{one.get("to")}}<td>{{s.brief(one.get("why"), 300)}}</tr>
% end
  </tbody></table></div>
% if len(decisions.value) == shown_decisions < 200:
  <p><a href="{{link('/nodes', decisions=200)}}#decisions">All that are kept</a></p>
% end
% end
</section>
</div>

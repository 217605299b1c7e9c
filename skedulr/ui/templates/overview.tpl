% rebase("layout.tpl")
<table>
<thead><tr><th>Pool<th>Workers<th>Queued<th>Scheduled<th>Running<th>Dead<th>Succeeded<th>Failed</tr></thead>
<tbody>
% for pool in overview.pools:
<tr><td>{{pool["name"]}}<td>{{pool["workers"]}}<td>{{pool["queued"]}}<td>{{pool["scheduled"]}}<td>{{pool["running"]}}<td>{{pool["dead"]}}<td>{{pool["succeeded"]}}<td>{{pool["failed"]}}</tr>
% end
</tbody>
</table>
% if not overview.pools:
<p>No pool was used yet: start <code>skedulr-master --pools default=10 MODULE</code> and submit a task.</p>
% end

% rebase("layout.tpl")
<div class="head"><div><h1>Changes</h1><p class="quiet">What was changed through this UI and its HTTP interface, newest first.</p></div></div>
<div id="live" data-every="5">
% if changes.trouble:
% include("trouble.tpl", trouble=changes.trouble)
% elif not changes.value:
<div class="empty"><p><b>Nothing was changed yet.</b></p><p>Whoever pauses, cancels, resubmits, submits or removes something here is noted, with the time and the address.</p></div>
% else:
<section><div class="scroll" tabindex="0" role="group" aria-label="Changes"><table><thead><tr><th class="n">When<th>Who<th>From<th>What<th>Of what</tr></thead><tbody>
% for change in changes.value:
<tr><td class="n">{{!s.moment(change["at"], now)}}<td>{{change["who"]}}<td><code>{{change["where"]}}</code><td><b>{{change["what"]}}</b><td class="wrap">{{change["target"]}}</tr>
% end
</tbody></table></div></section>
% end
</div>

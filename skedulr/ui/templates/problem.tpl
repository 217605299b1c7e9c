% rebase("layout.tpl")
<div class="empty"><h1>{{"Not found" if problem.status == 404 else "Redis does not answer" if problem.status == 503 else "Not possible"}}</h1>
<p>{{problem.message}}</p>
% if problem.status == 503:
<p>Workers wait and go on by themselves once it is back. This page looks again when it is loaded anew.</p>
% end
<p><a class="button" href="{{link('/')}}">Overview</a></p></div>

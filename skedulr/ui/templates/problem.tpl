% rebase("layout.tpl")
<h2>{{problem.status}}</h2>
<p>{{problem.message}}</p>
<p><a href="{{base_path}}/">Overview</a></p>

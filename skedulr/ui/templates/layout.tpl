<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{title}} · Skedulr</title>
<link rel="icon" type="image/svg+xml" href="{{asset('icon.svg')}}">
<link rel="stylesheet" href="{{asset('skedulr.css')}}">
<script src="{{asset('theme.js')}}"></script>
<script src="{{asset('vendor/idiomorph.js')}}" defer></script>
<script src="{{asset('skedulr.js')}}" defer></script>
</head>
<body data-root="{{root}}" data-path="{{path}}">
<a class="skip" href="#main">Skip to the content</a>
<header class="bar">
  <a class="brand" href="{{link('/')}}">
    <svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true"><circle cx="12" cy="12" r="9.5"/><path d="M12 6.5V12l3.8 2.4"/><path class="tick" d="M12 1v2.4M12 20.6V23M1 12h2.4M20.6 12H23"/></svg>
    <span>Skedulr</span>
  </a>
% if navigation:
  <nav aria-label="Pages">
% for key, target, name in navigation:
% if name != "Submit" or may_change:
    <a href="{{link(target)}}" data-key="{{key}}"{{!' aria-current="page"' if path == target or (target != '/' and path.startswith(target + '/')) else ''}}>{{name}}\\
% if name == "Dead" and layout and layout["dead"]:
<span class="badge" data-live="dead">{{s.count(layout["dead"])}}</span>\\
% end
</a>
% end
% end
  </nav>
  <form class="find" role="search" action="{{link('/tasks')}}" method="get">
    <label class="hidden" for="find">Search tasks</label>
    <input id="find" type="search" name="query" placeholder="Search tasks" autocomplete="off" maxlength="300" list="terms" data-terms="{{link('/terms')}}">
    <datalist id="terms"></datalist>
    <kbd aria-hidden="true">/</kbd>
  </form>
  <span id="stream" class="stream" role="status" title="Updates need JavaScript"><i></i><span>static</span></span>
  <button type="button" class="icon" id="theme" title="Light, dark, or as the system" aria-label="Change the colours">◐</button>
  <button type="button" class="icon" id="help" title="Keyboard (?)" aria-label="Keyboard shortcuts">?</button>
% if caller.name:
  <form method="post" action="{{link('/logout')}}" class="who"><span>{{caller.name}}{{'' if may_change else ' (viewer)'}}</span>\\
% if has_users:
<button class="quiet">Log out</button>\\
% end
</form>
% elif not may_change:
  <span class="who">read-only</span>
% end
% end
</header>
% if note:
<p class="note" role="status">{{note}}</p>
% end
<main id="main" tabindex="-1">
{{!base}}
</main>
<footer><span>Skedulr {{version}}</span><span><a href="{{link('/api/openapi.json')}}">HTTP interface</a></span></footer>
<dialog id="keys" aria-labelledby="keys-title">
  <h2 id="keys-title">Keyboard</h2>
  <dl class="keys">
    <dt><kbd>/</kbd></dt><dd>search</dd>
% for key, target, name in navigation:
    <dt><kbd>g</kbd> <kbd>{{key}}</kbd></dt><dd>go to {{name}}</dd>
% end
    <dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>next row, row before</dd>
    <dt><kbd>Enter</kbd></dt><dd>open the row</dd>
    <dt><kbd>x</kbd></dt><dd>select the row</dd>
    <dt><kbd>Esc</kbd></dt><dd>leave</dd>
    <dt><kbd>?</kbd></dt><dd>this list</dd>
  </dl>
  <form method="dialog"><button class="main">Close</button></form>
</dialog>
<dialog id="confirm" aria-labelledby="confirm-text">
  <p id="confirm-text"></p>
  <form method="dialog" class="row"><button value="" autofocus>Keep</button><button value="yes" class="danger" id="confirm-yes">Do it</button></form>
</dialog>
</body>
</html>

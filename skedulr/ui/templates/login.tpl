% rebase("layout.tpl")
<form method="post" action="{{link('/login')}}" class="sheet login">
  <h1>Log in</h1>
% if failed:
  <div class="trouble" role="alert">User or password are not right.</div>
% end
  <input type="hidden" name="back" value="{{here if not here.startswith('/login') else '/'}}">
  <label>User <input name="user" autocomplete="username" autofocus required></label>
  <label>Password <input name="password" type="password" autocomplete="current-password" required></label>
  <button class="main">Log in</button>
</form>

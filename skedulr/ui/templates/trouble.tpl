<div class="trouble" role="alert"><b>This part can not be shown.</b> {{trouble}}</div>

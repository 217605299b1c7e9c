<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{title}} · Skedulr</title>
</head>
<body>
<h1>Skedulr</h1>
{{!base}}
</body>
</html>

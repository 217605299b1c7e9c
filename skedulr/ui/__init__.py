"""The page and the HTTP interface that the master serves."""

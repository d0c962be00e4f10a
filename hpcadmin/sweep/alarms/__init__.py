"""What a sweep found, told by mail, web hooks, syslog and metrics: when it begins, changes or ends, and once a day."""

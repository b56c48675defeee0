"""What `prometheus` and `grafana` are made of: an objective, rules, alerts, a scrape config, panels.

    objective.py   what is promised: a latency that 99 % of the requests keep, and a share that is answered
    recording.py   recording rules: rates and shares over the windows that the alerts need, percentiles
    burn.py        alerts on the objective's budget, in several windows and at several rates
    alerts.py      all other alerts
    alert.py       one alert as a rule, with its annotations
    scrape.py      an example of Prometheus' own config
    panel.py       panels of a dashboard as Grafana's JSON
    rows.py        which panels there are, row by row

Names of metrics are those of `edgekit serve` and of the runner's `metrics=`.
"""

"""OpenTelemetry metrics: the numbers of ``/metrics`` as observable instruments of a meter.

They are of the whole namespace, whichever process gives them out, so let one process do it: a
small service beside the masters, say. Needs the extra ``otel``, and the SDK with an exporter of
your choice. Importing this module does nothing. Traces of tasks are another part, the middleware
``skedulr.OpenTelemetry``.

    import skedulr.otel
    skedulr.otel.install()                  # the default app, the global meter provider

An instrument is called as its metric, with a dot behind "skedulr" and the unit apart:
``skedulr.queued``, ``skedulr.oldest_age`` (s), ``skedulr.finished``. Observable instruments know no
histograms, so one of these is three counters: ``skedulr.wait.count``, ``skedulr.wait.sum`` (s) and
``skedulr.wait.bucket``, whose attribute ``le`` is the bound in seconds, as in Prometheus.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from . import metrics
from ._version import __version__
from .app import default
from .errors import ConfigError, SkedulrError
from .kept import Kept
from .metrics import HISTOGRAM, METRICS, Metric, Reading
from .statistics import Times

if TYPE_CHECKING:
    from .app import Skedulr

log = logging.getLogger("skedulr.otel")

#: Units as OpenTelemetry writes them.
_UNITS = {"seconds": "s", "tasks": "{task}", "workers": "{worker}"}


class _Instrument(NamedTuple):
    """One instrument of a metric: what it is called, its unit, and what it takes of a value."""

    name: str
    unit: str
    take: Callable[[Any], Iterable[tuple[dict[str, str], float]]]


def install(app: Skedulr | None = None, meter_provider: Any = None) -> None:
    """Have a meter give out what ``/metrics`` tells of the app's namespace, when it is collected.

    ``app``: None is the default one; ``meter_provider``: None is the global one. Twice for the same
    two is once. Redis is asked at most once a second; while it does not answer nothing is given
    out. Raises ConfigError where OpenTelemetry is not installed.

    >>> skedulr.otel.install(meter_provider=provider)                # doctest: +SKIP
    """
    api = _api()
    app = default if app is None else app
    if any(one is meter_provider for one in app.meter_providers):
        return
    app.meter_providers.append(meter_provider)
    meter = api.get_meter("skedulr", __version__, meter_provider)
    read = metrics.reader(lambda: app.client)
    for metric in METRICS:
        make = (
            meter.create_observable_gauge if metric.kind == metrics.GAUGE
            else meter.create_observable_counter
        )
        for instrument in _instruments(metric):
            make(
                instrument.name, callbacks=[_observer(api, read, metric, instrument)],
                unit=instrument.unit, description=metric.text,
            )


def _api() -> Any:
    try:
        # Here: only those who use it have it.
        return importlib.import_module("opentelemetry.metrics")
    except ImportError as error:
        raise ConfigError("OpenTelemetry is not installed: pip install 'skedulr[otel]'") from error


def _instruments(metric: Metric) -> Iterator[_Instrument]:
    name, unit = metric.name.replace("_", ".", 1), _UNITS[metric.unit]
    if metric.kind != HISTOGRAM:
        yield _Instrument(name, unit, lambda value: [({}, value)])
        return
    yield _Instrument(f"{name}.count", "{task}", lambda times: [({}, times.count)])
    yield _Instrument(f"{name}.sum", unit, lambda times: [({}, times.sum_ms / 1000)])
    yield _Instrument(f"{name}.bucket", "{task}", _below)


def _below(times: Times) -> list[tuple[dict[str, str], float]]:
    return [({"le": bound}, count) for bound, count in metrics.buckets_of(times)]


def _observer(
    api: Any, read: Kept[Reading], metric: Metric, instrument: _Instrument
) -> Callable[[Any], Iterable[Any]]:
    def observe(options: Any) -> Iterable[Any]:
        try:
            points = metric.points(read.get())
        except SkedulrError as error:
            log.debug("%s can not be told: %s", instrument.name, error)
            return []
        return [
            api.Observation(number, {**dict(zip(metric.labels, labels, strict=True)), **more})
            for labels, value in points for more, number in instrument.take(value)
        ]

    return observe

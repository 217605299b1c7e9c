"""Middleware: functions around every run of a task, on the worker's side.

A middleware takes the next step and gives back one of its own, first given outermost:

    def timed(call_next):
        def run(context):
            began = time.monotonic()
            try:
                return call_next(context)
            finally:
                print(context.name, time.monotonic() - began)
        return run
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .context import Context
from .errors import ConfigError, Reject, Retry, TaskCancelled, TaskTimeout

if TYPE_CHECKING:
    from .tasks import Call

Step = Callable[[Context], Any]
Middleware = Callable[[Step], Step]


def compose(middleware: Iterable[Middleware], function: Callable[..., Any]) -> Step:
    """One step that goes through all of ``middleware`` and then calls ``function``.

    >>> step = compose([lambda call_next: lambda context: call_next(context) + 1], int)
    """

    def innermost(context: Context) -> Any:
        return function(*context.args, **context.kwargs)

    step: Step = innermost
    for one in reversed(list(middleware)):
        step = one(step)
    return step


class Logging:
    """Middleware that writes a line when a run begins and when it ends; arguments are not shown."""

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._log = logger or logging.getLogger("skedulr.task")
        self._level = level

    def __call__(self, call_next: Step) -> Step:
        def run(context: Context) -> Any:
            self._log.log(self._level, "%s %s begins, attempt %d", context.name, context.id,
                          context.attempt)
            try:
                result = call_next(context)
            except BaseException as error:
                self._log.log(self._level, "%s %s ended with %s", context.name, context.id,
                              type(error).__name__)
                raise
            self._log.log(self._level, "%s %s is done", context.name, context.id)
            return result

        return run


class Recovery:
    """Middleware that lets nothing but ordinary errors out of a handler, and reports each.

    ``sys.exit()``, ``KeyboardInterrupt`` and other errors that derive from BaseException become a
    RuntimeError, which ``retry_on`` and the ``except Exception`` of outer middleware understand;
    the original is its cause. Time limits and cancels pass as they are.

    ``report(context, error)`` is called for each failed attempt, for an error tracker; not for a
    cancel, nor for a Retry or Reject that the handler meant. What it raises is logged.

    >>> skedulr.use(skedulr.Recovery(report=lambda context, error: sentry.capture(error)))
    ...                                                              # doctest: +SKIP
    """

    def __init__(self, report: Callable[[Context, BaseException], object] | None = None) -> None:
        self._report = report
        self._log = logging.getLogger("skedulr.task")

    def __call__(self, call_next: Step) -> Step:
        def run(context: Context) -> Any:
            try:
                return call_next(context)
            except TaskCancelled:
                raise
            except Exception as error:
                self._tell(context, error)
                raise
            except BaseException as error:
                self._tell(context, error)
                # An interruption of ours, which the worker looks out for.
                if context.cancelled or isinstance(error, TaskTimeout):
                    raise
                name = type(error).__name__
                raise RuntimeError(f"the handler raised {name}({error})") from error

        return run

    def _tell(self, context: Context, error: BaseException) -> None:
        if self._report is None or isinstance(error, (Retry, Reject)) or (
            context.cancelled and not isinstance(error, TaskTimeout)
        ):
            return
        try:
            self._report(context, error)
        except Exception:
            self._log.exception("reporting an error of task %s failed", context.id)


class OpenTelemetry:
    """Middleware that carries the producer's trace to the worker, and spans each run.

    Needs the extra ``otel``. A submit sends the current trace along in the call's headers; each
    attempt is a span of kind CONSUMER in that trace, with the task's name, id, pool and attempt,
    and with its error. ``tracer_provider``: None is the global one.

    >>> skedulr.use(skedulr.OpenTelemetry())                        # doctest: +SKIP
    """

    def __init__(self, tracer_provider: Any = None) -> None:
        try:
            # Here: only those who use it have it.
            self._trace = importlib.import_module("opentelemetry.trace")
            self._propagate = importlib.import_module("opentelemetry.propagate")
        except ImportError as error:
            raise ConfigError(
                "OpenTelemetry is not installed: pip install 'skedulr[otel]'"
            ) from error
        self._tracer = self._trace.get_tracer("skedulr", tracer_provider=tracer_provider)

    def before_submit(self, call: Call[Any]) -> dict[str, str]:
        """The current trace, as headers."""
        headers: dict[str, str] = {}
        self._propagate.inject(headers)
        return headers

    def __call__(self, call_next: Step) -> Step:
        def run(context: Context) -> Any:
            texts = {key: text for key, text in context.headers.items() if isinstance(text, str)}
            with self._tracer.start_as_current_span(
                f"process {context.name}", context=self._propagate.extract(texts),
                kind=self._trace.SpanKind.CONSUMER,
                attributes={
                    "messaging.system": "skedulr", "messaging.operation.type": "process",
                    "messaging.destination.name": context.pool,
                    "messaging.message.id": context.id, "skedulr.task": context.name,
                    "skedulr.attempt": context.attempt,
                },
                record_exception=False, set_status_on_exception=False,
            ) as span:
                try:
                    return call_next(context)
                except BaseException as error:
                    # Also those that are no Exception, as time limits.
                    span.record_exception(error)
                    text = f"{type(error).__name__}: {error}"
                    span.set_status(self._trace.StatusCode.ERROR, text)
                    raise

        return run

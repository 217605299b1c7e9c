"""Skedulr: one application's tasks, settings and client, wired together.

The module functions of the package are the methods of one default app. Making an app connects
nothing and imports neither gevent nor redis: modules with tasks are imported before an application
patches itself, and redis loads ssl, which must not happen before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from . import config as configuration
from . import options, tasks
from .codecs import Codec, codec_of
from .defaults import Defaults
from .errors import ConfigError, ResultTimeout, SkedulrError
from .hooks import Hooks
from .limiting import Limit
from .schedule_methods import ScheduleMethods
from .tasks import Call, Chain, Registry, Task
from .whereabouts import Whereabouts
from .workflows import Workflow

if TYPE_CHECKING:
    from typing import Unpack

    from .client import Client, ClientConfig
    from .handles import Handle
    from .middleware import Middleware
    from .options import Options

    F = TypeVar("F", bound=Callable[..., Any])
    SubmitHook = TypeVar("SubmitHook", bound=Callable[[Call[Any]], Mapping[str, Any] | None])

P = ParamSpec("P")
R = TypeVar("R")


class Skedulr(ScheduleMethods):
    """An app: ``app = Skedulr(url="redis://...")``; ``@app.task``; ``app.submit(...)``.

    ``settings`` are those of the configuration (``namespace``, ``submit_timeout``, ...); what is
    not given comes from the environment, the file, or the defaults.
    """

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        self.tasks = Registry()
        self.declared = {}
        self.hooks = Hooks()
        self.middleware: list[Middleware] = []
        #: Options that all tasks share, or None.
        self.shared: Defaults | None = None
        self._settings: dict[str, Any] = {}
        # One at most. A dict, because threads that come at once can agree on its entry without a
        # lock, which a fork could copy locked.
        self._clients: dict[None, Client] = {}
        #: What seals arguments and results, where it was given as an object.
        self._codec: Codec | None = None
        #: Those of OpenTelemetry that give out this app's numbers; see otel.py.
        self.meter_providers: list[Any] = []
        #: Makes the client where it is not the usual one: the testing kit's.
        self.client_maker: Callable[[ClientConfig], Client] | None = None
        #: ``transactions(store, alias)`` calls ``store()`` once the current transaction of that
        #: database (None: the default one) is committed; at once where there is none.
        self.transactions: Callable[[Callable[[], None], str | None], object] | None = None
        self.configure(url=url, **settings)

    def configure(
        self, url: str | None = None, *, defaults: Mapping[str, Any] | None = None,
        pool_defaults: Mapping[str, Mapping[str, Any]] | None = None,
        codec: Codec | str | None = None, **settings: Any,
    ) -> None:
        """Change settings for what is done from now on; raises ConfigError for unknown ones.

        ``defaults`` are options that hold for all tasks of this app, ``pool_defaults`` those of a
        pool, by its name; what ``@task`` or a call says is stronger. Producers and workers both
        read them, so give them where both import it. ``codec`` seals arguments and results (see
        ``skedulr.codecs``): an object, or ``"sign:FILE"``, ``"encrypt:FILE"``.

        >>> skedulr.configure(defaults={"max_retries": 5},
        ...                   pool_defaults={"critical": {"timeout": 30}})     # doctest: +SKIP
        """
        if defaults is not None or pool_defaults is not None:
            self.shared = Defaults(defaults, pool_defaults)
        given = dict(settings)
        if isinstance(codec, str):
            given["codec"] = codec
        elif codec is not None:
            self._codec = codec
        if url is not None:
            given["redis"] = url
        # Refuse at once, where the mistake is.
        configuration.load({}, {**self._settings, **given}, {}, Path("/"), None)
        self._settings.update(given)
        self.close()

    @property
    def codec(self) -> Codec | None:
        """What seals arguments and results here, where it was given as an object."""
        return self._codec

    @property
    def settings(self) -> Mapping[str, Any]:
        """What ``configure`` was given so far."""
        return dict(self._settings)

    # Defining

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self, function: None = None, /, *, name: str | None = None, **given: Unpack[Options]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(
        self, function: Any = None, /, *, name: str | None = None, **given: Any
    ) -> Any:
        """Make a function a task: ``@task`` or ``@task(name=..., pool=..., ...)``.

        Options hold for every call of the task, unless ``using`` says otherwise. Raises ConfigError
        for async functions, lambdas, methods, a name that is taken, and unusable options.
        """
        for one in options.OF_A_CALL[1:]:
            if one in given:
                raise ConfigError(f"{one}= belongs to one call: task.using({one}=...)")
        if "id" in given:
            raise ConfigError("id= belongs to one call: task.using(id=...)")
        defaults = options.check(given)

        def register(function: Callable[P, R]) -> Task[P, R]:
            tasks.check_function(function)
            called = tasks.default_name(function) if name is None else name
            tasks.check_redact(called, function, defaults.get("redact", ()))
            made = Task(
                app=self, name=tasks.check_task_name(called), function=function, defaults=defaults,
            )
            self.tasks.add(made)
            return made

        return register if function is None else register(function)

    def remote(
        self, name: str, *, check: bool = False, **given: Unpack[Options]
    ) -> Task[..., Any]:
        """A task by its name alone, whose code is elsewhere.

        Its pool and defaults are those that its workers publish. A name that none has published
        yet goes to pool ``default`` (or the one given), whence a worker that knows better moves it;
        with ``check`` it is refused here: UnknownTask.
        """
        known = self.tasks.get(name)
        if known is not None:
            return known.using(**given)
        if check:
            self.client.require(name)
        own = options.check(cast("dict[str, Any]", given))
        return Task(
            app=self, name=tasks.check_task_name(name), function=None, defaults={}, own=own
        )

    def use(self, *middleware: Middleware) -> None:
        """Put ``middleware`` around every run of this app's tasks, first given outermost.

        One that has a method ``before_submit(call)`` is asked at each submit as well.
        """
        self.middleware += middleware
        for one in middleware:
            hook = getattr(one, "before_submit", None)
            if hook is not None:
                self.before_submit(hook)

    def before_submit(self, hook: SubmitHook) -> SubmitHook:
        """A decorator: have ``hook(call)`` called in the producer at each submit of this app.

        What it returns is added to the call's headers, which the task finds in
        ``current_task().headers``; headers that the call or the task gives are stronger. What it
        raises, the submit raises.

        >>> @skedulr.before_submit                           # doctest: +SKIP
        ... def tenant(call):
        ...     return {"tenant": request.tenant}
        """
        self.hooks.before_submit.append(hook)
        return hook

    def on(self, event: str) -> Callable[[F], F]:
        """A decorator: have the function called at each ``"success"``, ``"retry"``, ``"dead"`` or
        ``"child_start"``, or for the whole cluster at ``"long_queue"``, ``"leader_change"`` or
        ``"stats"``; see ``skedulr.hooks.EVENTS`` for what it is called with."""
        return self.hooks.on(event)

    def on_long_queue(
        self, threshold: float | None = None, pool: str | None = None
    ) -> Callable[[F], F]:
        """A decorator: have the function called with a pool's statistics when its predicted wait
        passes ``threshold`` seconds, and again when it has come back under 0.8 of that.

        Once for each crossing in the whole cluster, in some child that has the hook, whichever
        node leads. ``threshold`` None is the upper edge of ``--target-wait``; ``pool`` None: every
        pool. Beside the pool's fields the function is given ``threshold``, ``wait`` (seconds) and
        ``long`` (False: it came back). Raises ConfigError for an unusable threshold.

        >>> @skedulr.on_long_queue(30, pool="mail")          # doctest: +SKIP
        ... def tell(queue):
        ...     chat(f"{queue['name']}: {queue['wait']:.0f} s, {queue['queued']} tasks")
        """
        return self.hooks.on_long_queue(threshold, pool)

    # Submitting

    @overload
    def submit(self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]: ...

    @overload
    def submit(self, task: Call[R], /) -> Handle[R]: ...

    @overload
    def submit(self, task: str, /, *args: Any, **kwargs: Any) -> Handle[Any]: ...

    def submit(self, task: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Queue a task with these arguments, or a bound call, or a task by its name.

        >>> skedulr.submit("send_email", to="a@example.com")      # doctest: +SKIP
        """
        if isinstance(task, Call):
            if args or kwargs:
                raise ConfigError("a bound call has its arguments already")
            return self.submit_call(task)
        if isinstance(task, str):
            task = self.remote(task)
        if not isinstance(task, Task):
            raise ConfigError(
                f"{task!r} is not a task: decorate the function with @skedulr.task, "
                "or give the task's name"
            )
        return self.submit_call(Call(task, args, kwargs))

    def submit_call(self, call: Call[R]) -> Handle[R]:
        """Queue one bound call."""
        if self.hooks.before_submit:
            call = self._with_headers(call)
        if call.task.on_commit:
            return self._submit_on_commit(call)
        return self.client.submit(call)

    def submit_chain(self, chain: Chain[R]) -> Handle[R]:
        """Queue the calls of a chain, all of them or none; the handle of the last one."""
        with self.workflow("chain") as w:
            last = w.add(chain)
        return last.handle

    def _with_headers(self, call: Call[R]) -> Call[R]:
        """The call with what the hooks add to its headers; its own are stronger."""
        added = self.hooks.headers_for(call)
        if not added:
            return call
        task = call.task.using(headers={**added, **call.task.option("headers", {})})
        return Call(task, call.args, call.kwargs)

    def _submit_on_commit(self, call: Call[R]) -> Handle[R]:
        if self.transactions is None:
            raise ConfigError(
                "on_commit= needs to know of transactions: add 'skedulr.contrib.django' to "
                "INSTALLED_APPS, or set transactions on the app"
            )
        handle, store = self.client.later(call)
        using = call.task.on_commit
        self.transactions(store, using if isinstance(using, str) else None)
        return handle

    def workflow(self, name: str, *, id: str | None = None) -> Workflow:
        """A graph of steps that wait for each other; leaving its block stores all or nothing.

        ``id``: a uid of yours, as for tasks, so that a repeat (of the task that describes it, say)
        finds what was started instead of starting it again. Other steps under the same id, by
        number, names or pools, are a DuplicateTask.

        >>> with skedulr.workflow("import") as w:                 # doctest: +SKIP
        ...     a = w.add(load.bind("f.csv"))
        ...     w.add(report.bind(a))
        ...     w.add(cleanup.bind(), on_failure=a)
        """
        return Workflow(self, name, id=id, prepare=self._prepared)

    def _prepared(self, call: Call[R]) -> Call[R]:
        """A call with what the ``before_submit`` hooks add to its headers."""
        return self._with_headers(call) if self.hooks.before_submit else call

    def submit_many(self, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """Queue any iterable of bound calls, 500 per round trip; their handles in order.

        Raises BulkError when it stops half way: ``submitted`` handles, and the ``index`` to go on
        from. Calls with given ids may simply be submitted again.
        """
        return self.client.submit_many(self._calls(calls))

    def submit_iter(self, calls: Iterable[Call[Any]]) -> Iterator[str]:
        """Queue any iterable of bound calls in constant memory; yields each id once stored."""
        return self.client.submit_iter(self._calls(calls))

    def _calls(self, calls: Iterable[Any]) -> Iterator[Call[Any]]:
        for index, call in enumerate(calls):
            if not isinstance(call, Call):
                raise SkedulrError(
                    f"item {index} is {call!r}, not a call: task.bind(...) makes one"
                )
            if call.task.on_commit:
                raise ConfigError(
                    f"item {index} has on_commit=, which is for single submits: submit all of them "
                    "in a function that your transaction calls when it is committed"
                )
            yield self._with_headers(call) if self.hooks.before_submit else call

    # Asking and steering

    def get(self, id: str) -> Handle[Any]:
        """The handle of an id; raises TaskNotFound where no such task is known."""
        handle = self.client.handle(id)
        self.client.state(id)
        return handle

    def cancel(self, id: str) -> bool:
        """Cancel a task by its id; see ``Handle.cancel``."""
        return self.client.cancel(id)

    def resubmit(self, id: str) -> bool:
        """Put an ended task back into its queue; see ``Handle.resubmit``."""
        return self.client.resubmit(id)

    def wait(
        self, handles: Iterable[Handle[Any] | str], timeout: float | timedelta | None = None
    ) -> bool:
        """Wait until all have ended, however they did; False when ``timeout`` seconds are over.

        Handles, or ids as ``submit_iter`` gives them.
        """
        ids = {one.id for one in self._handles(handles)}
        return sum(1 for _ in self.client.ends(ids, timeout)) == len(ids)

    def as_completed(
        self, handles: Iterable[Handle[R] | str], timeout: float | timedelta | None = None
    ) -> Iterator[Handle[R]]:
        """The handles in the order in which their tasks end, however they do.

        Handles, or ids as ``submit_iter`` gives them. Raises ResultTimeout when ``timeout`` seconds
        are over, counted from the first ``next``.

        >>> for handle in skedulr.as_completed(handles, timeout=60):     # doctest: +SKIP
        ...     print(handle.result())
        """
        by_id = {handle.id: handle for handle in self._handles(handles)}
        for id, _ in self.client.ends(list(by_id), timeout):
            yield by_id.pop(id)
        if by_id:
            raise ResultTimeout(f"{len(by_id):,} tasks had not ended after {timeout} s")

    def _handles(self, given: Iterable[Handle[R] | str]) -> Iterator[Handle[R]]:
        return (self.client.handle(one) if isinstance(one, str) else one for one in given)

    def stats(self, priority: int = 0) -> dict[str, Any]:
        """The whole namespace in numbers, each pool, and each task's runs since ever.

        The form of ``GET /api/stats``; times in ms, rates in tasks/s, predicted waits in seconds
        for a task of ``priority``; None for what can not be known.

        >>> skedulr.stats()["predicted_wait"]                            # doctest: +SKIP
        0.0
        """
        return self.client.stats(priority)

    def history(
        self, pool: str | None = None, name: str | None = None, period: float = 3600,
        step: float | None = None,
    ) -> dict[str, Any]:
        """How a pool (None: all together), or the runs of the task ``name``, did over time.

        ``period`` and ``step`` are seconds: minutes are kept for 8 hours, tens of minutes for 3
        days, days for a year. The answer has lists of one length: ``t``, when each point ends
        (epoch seconds); ``submitted``, ``throughput``, ``succeeded``, ``failed``, ``dead`` in
        tasks/s; ``wait_p50_ms``, ``wait_p95_ms``, ``wait_mean_ms`` and the same of ``run``; None
        where nothing is known. ``now`` has the rates of each pool. Raises UnknownPool, ConfigError.

        >>> skedulr.history("default", period=86400)["throughput"][-1]   # doctest: +SKIP
        12.5
        """
        return self.client.history(pool, name, period, step)

    def pause(self, pool: str | None = None) -> None:
        """Claim nothing more in a pool, or in every pool there is, on any node, until ``resume``.

        What runs goes on, submits are accepted, and a restart changes nothing. Raises UnknownPool.
        """
        self.client.pause(pool, True)

    def resume(self, pool: str | None = None) -> None:
        """Go on after ``pause``, in a pool or in all of them. Raises UnknownPool."""
        self.client.pause(pool, False)

    def scale_pool(self, pool: str, workers: int | None, create: bool = False) -> None:
        """Give a pool so many workers in each of its processes, on every node, within a second.

        ``workers`` is a whole number from 0 (nothing is claimed) to 10,000. It is kept, and wins
        over ``--pools`` and tuning until it is taken back with None. Running tasks are left alone.
        With ``create`` every node forks a process for a pool that none serves; without it that
        raises UnknownPool.

        >>> skedulr.scale_pool("reports", 16)      # doctest: +SKIP
        """
        self.client.scale_pool(pool, workers, create=create)

    def set_limit(
        self, name: str, *, concurrency: int | None = None, rate: float | None = None,
        per: float | timedelta = 1.0, burst: int | None = None, pool: str | None = None,
    ) -> None:
        """Have a limit be another one at once, in place of what its tasks declare.

        ``name`` is the limit's, or the name of the task that declares it; numbers are as for
        ``Limit``. It holds in ``pool``, or in every pool that knows the limit, also after a
        restart, until ``reset_limit``. Running tasks are left alone. Raises ConfigError, also for
        a name that no pool knows yet, and UnknownPool.

        >>> skedulr.set_limit("crawl", rate=100, per=60)      # doctest: +SKIP
        """
        limit = Limit(concurrency=concurrency, rate=rate, per=per, burst=burst)
        self.client.set_limit(name, limit, pool)

    def reset_limit(self, name: str, pool: str | None = None) -> None:
        """Take back ``set_limit``: what the tasks declare holds again. Raises as that does."""
        self.client.set_limit(name, None, pool)

    def limits(self, pool: str | None = None) -> list[dict[str, Any]]:
        """The limits of a pool, or of all, as the HTTP interface shows them. Raises UnknownPool."""
        return self.client.limits(pool)

    def purge(self, pool: str, state: str | None = None, name: str | None = None) -> int:
        """Remove tasks of a pool for good; how many were.

        Without ``state`` all that has not started: queued, scheduled, waiting. What has ended is
        removed where its state is named (``"dead"``, ``"succeeded"``, ...), what runs never.
        ``name`` takes the tasks of one name only. It goes by steps, so what is submitted meanwhile
        may stay; one that was broken off (StorageUnavailable) is run again. Raises UnknownPool,
        ConfigError for a state there is none of.

        >>> skedulr.purge("reports", state="dead", name="daily")      # doctest: +SKIP
        12
        """
        return self.client.purge(pool, state=state, name=name)

    # The UI

    def dashboard(
        self, prefix: str = "", auth: Callable[[dict[str, Any]], bool] | None = None,
        read_only: bool = False,
    ) -> Callable[..., Iterable[bytes]]:
        """The UI and HTTP interface as a WSGI application, for any server and any number of
        threads or greenlets.

        ``prefix`` is the path it is mounted at, where the server does not take it off itself.
        ``auth(environ) -> bool`` says who may use it; None: whoever reaches it may do everything,
        so the host application guards it. ``read_only``: nobody changes anything.

        >>> application = skedulr.dashboard("/jobs", auth=is_staff)    # doctest: +SKIP
        """
        # Here and not above: redis must not be loaded by importing a module with tasks.
        from .ui.app import make_app

        return make_app(
            lambda: self.client, prefix=prefix, auth=auth, read_only=read_only, hosts=None,
            loopback=False,
        )

    # Inside

    def close(self) -> None:
        """End this process's connections and threads; the next use makes new ones."""
        client = self._clients.pop(None, None)
        if client is not None:
            client.close()

    @property
    def client(self) -> Client:
        """The client, made at first use; it connects at its own first use."""
        known = self._clients.get(None)
        return known or self._clients.setdefault(None, self._make_client())

    def _make_client(self) -> Client:
        # Here and not above: redis must not be loaded by importing a module with tasks.
        from .client import Client, ClientConfig

        settings = configuration.load({}, self._settings, os.environ, Path.cwd(), None)
        find = partial(configuration.find_redis, settings, os.environ, Path.cwd())
        address = find()
        return (self.client_maker or Client)(ClientConfig(
            url=address.url, namespace=settings.namespace,
            submit_timeout_s=settings.submit_timeout, payload_limit=settings.payload_limit,
            capacity=settings.capacity or 0, codec=self.codec or codec_of(settings.codec),
            wait_replicas=settings.wait_replicas, how=address.how,
            whereabouts=None if address.explicit else Whereabouts(address, find),
        ))


#: The app behind the module functions.
default: Skedulr = Skedulr()

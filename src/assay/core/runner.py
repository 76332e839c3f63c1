"""How a study is run: local processes through joblib, a Ray cluster, or a Dask cluster, and never a trial twice.

Every finished trial is written to the ledger at once, so that an interruption loses the trials in flight and no more.
"""

from __future__ import annotations

import faulthandler
import math
import os
import pickle
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from assay.core.device import gpu_names
from assay.core.errors import AssayError, InputError, MissingPackageError
from assay.core.ledger import Ledger, Record, Status, describe_environment, trial_key, trial_source
from assay.core.study import A_GPU, Study, Trial

__all__ = ["Run", "run"]

GRACE_SECONDS = 10.0
"""How long a trial may take to stop by itself after its time is up."""
LATE = ".late"
"""The ending of the mark of a trial whose time was up."""
STDERR_TAIL = 4000
PARENT_CHECK_SECONDS = 1.0
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)


@dataclass
class Run:
    """What a run did.

    Attributes
    ----------
    planned : int
        Trials of the study at this scale.
    known : int
        How many of them the ledger held already.
    lacking : dict of str to int
        Modules that aren't installed, and how many trials wait for each.
    records : list of Record
        The trials that were run now.
    """

    planned: int = 0
    known: int = 0
    lacking: dict[str, int] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)

    @property
    def to_run(self) -> int:
        """How many trials are missing and can be run here."""
        return self.planned - self.known - self._waiting

    @property
    def failed(self) -> int:
        """How many trials of this run have no result."""
        return sum(record.status != "done" for record in self.records)

    _waiting: int = 0


@dataclass
class _Outcome:
    """What a worker sends back."""

    status: Status
    measurements: dict[str, float]
    seconds: float
    started: str
    error: str
    artifacts: dict[str, bytes]
    environment: dict[str, Any]


@dataclass(frozen=True)
class _Task:
    """A trial on its way to a worker."""

    key: str
    source: str
    trial: Trial
    payload: bytes
    limit: float
    alone: bool
    own_process: bool


Finished = tuple[_Task, _Outcome]


def run(
    study: Study,
    method: str,
    scale_name: str,
    *,
    ledger: Ledger,
    seeds: int | None = None,
    cases: Sequence[str] = (),
    arms: Sequence[str] = (),
    on: str = "local",
    jobs: int | None = None,
    retry: bool = False,
    planned: Callable[[Run], None] | None = None,
    progress: Callable[[Record], None] | None = None,
) -> Run:
    """Run the trials of a study that the ledger lacks.

    Parameters
    ----------
    study, method, scale_name
        What to run.
    ledger : Ledger
        Where trials are kept; what it holds isn't run again.
    seeds, cases, arms
        As `Study.trials`.
    on : str
        ``"local"``; ``"ray"`` or ``"ray://host:port"`` (or another address that ``ray.init`` takes, as
        ``"ray:ADDRESS"``); ``"dask"`` (a local cluster) or a scheduler's address such as ``"tcp://host:8786"``.
    jobs : int, optional
        How many trials at a time on this machine; one a core when left out.
    retry : bool
        Run trials again that failed, timed out or died before.
    planned, progress : callable, optional
        Called once with what is to be done, and with each trial as it ends.

    Returns
    -------
    Run

    Raises
    ------
    InputError
        `on` names no executor, or a pattern matches nothing.
    KeyboardInterrupt
        The user stopped the run; what ended before is in the ledger.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}", expected="at least 1")
    execute = _executor(on)
    result = Run()
    tasks = _missing(study, method, scale_name, ledger, result, seeds=seeds, cases=cases, arms=arms, retry=retry, on=on)
    if planned is not None:
        planned(result)
    environments: dict[str, str] = {}
    if tasks:
        ledger.add_environment(describe_environment())  # a ledger that can't be written is found before the work
    for task, outcome in execute(tasks, jobs or os.cpu_count() or 1):
        text = repr(outcome.environment)
        if text not in environments:
            environments[text] = ledger.add_environment(outcome.environment)
        record = _record(task, outcome, environment=environments[text])
        record = ledger.add(record, artifacts=outcome.artifacts)
        result.records.append(record)
        if progress is not None:
            progress(record)
    return result


def _missing(
    study: Study, method: str, scale_name: str, ledger: Ledger, result: Run, *, retry: bool, on: str, **filters: Any
) -> list[_Task]:
    known = {record.key for record in ledger.read(method) if record.status == "done" or not retry}
    limit = study.scale(scale_name).limit_seconds
    tasks = []
    for trial in study.trials(method, scale_name, **filters):
        result.planned += 1
        source = trial_source(study.trial, trial.function)
        key = trial_key(trial, source=source)
        lacking = [need for need in study.lacking(trial) if need != A_GPU or on == "local"]
        if key in known:
            result.known += 1
        elif lacking:
            result._waiting += 1
            for module in lacking:
                result.lacking[module] = result.lacking.get(module, 0) + 1
        else:
            case = study.case(trial)
            payload = _payload(study.trial, trial, by_value=on != "local")
            tasks.append(
                _Task(key, source, trial, payload, limit, alone=case.alone, own_process=case.own_process or trial.gpu)
            )
    return tasks


def _record(task: _Task, outcome: _Outcome, *, environment: str) -> Record:
    trial = task.trial
    return Record(
        key=task.key,
        method=trial.method,
        arm=trial.arm,
        case=trial.case,
        seed=trial.seed,
        scale=trial.scale,
        status=outcome.status,
        measurements=outcome.measurements,
        seconds=outcome.seconds,
        started=outcome.started,
        source=task.source,
        environment=environment,
        arm_settings=trial.arm_settings,
        case_settings=trial.case_settings,
        error=outcome.error,
    )


def _executor(on: str) -> Callable[[list[_Task], int], Iterator[Finished]]:
    if on == "local":
        return _run_locally
    if on == "ray" or on.startswith(("ray://", "ray:")):
        address = None if on == "ray" else on if on.startswith("ray://") else on.removeprefix("ray:")
        return lambda tasks, jobs: _run_on_ray(tasks, jobs, address=address)
    if on == "dask" or on.startswith(("tcp://", "tls://", "ucx://", "ws://", "wss://")):
        return lambda tasks, jobs: _run_on_dask(tasks, jobs, address=None if on == "dask" else on)
    raise InputError(
        f"on is '{on}'", expected="local, ray, ray://HOST:PORT, dask, or tcp://HOST:PORT of a Dask scheduler"
    )


def _run_locally(tasks: list[_Task], jobs: int) -> Iterator[Finished]:
    """Run tasks that may share the machine side by side, then those that want it alone, in the study's order."""
    widths = _widths(tasks, jobs)
    for width in sorted(set(widths.values()), reverse=True):
        group = [task for task in tasks if widths[task.key] == width]
        for own_process in (False, True):
            chosen = [task for task in group if task.own_process == own_process]
            if chosen:
                yield from (_in_own_processes if own_process else _in_shared_processes)(chosen, width)


def _widths(tasks: Sequence[_Task], jobs: int) -> dict[str, int]:
    """How many trials may run at a time beside each task: the arms of one case always run under equal conditions."""
    threads: dict[str, int] = {}
    for task in tasks:
        threads[task.trial.case] = max(threads.get(task.trial.case, 1), task.trial.threads)
    return {task.key: 1 if task.alone else max(1, jobs // threads[task.trial.case]) for task in tasks}


def _in_own_processes(tasks: Sequence[_Task], width: int) -> Iterator[Finished]:
    import joblib

    gpus = _Gpus(len(gpu_names()) if any(task.trial.gpu for task in tasks) else 0)
    parallel = joblib.Parallel(n_jobs=width, backend="threading", return_as="generator_unordered")
    yield from parallel(joblib.delayed(_run_alone)(task, gpus) for task in tasks)


def _run_alone(task: _Task, gpus: _Gpus) -> Finished:
    with gpus.one(task.trial.gpu) as device:
        return task, _run_in_own_process(task.payload, task.limit, task.trial.threads, device)


def _in_shared_processes(tasks: Sequence[_Task], width: int) -> Iterator[Finished]:
    """Run tasks in a pool of processes that live on between trials.

    A trial whose time is up ends its process, because what it was doing may have left the process unsound. Then, and
    when a worker dies otherwise, the pool is lost: trials that were in flight run one by one in processes of their own,
    where one that kills its process does no more harm, and a new pool goes on with the rest.
    """
    from joblib.externals.loky import as_completed
    from joblib.externals.loky.process_executor import BrokenProcessPool

    waiting = {task.key: task for task in tasks}
    while waiting:
        marks = Path(tempfile.mkdtemp(prefix="assay-run-"))
        threads = max(task.trial.threads for task in waiting.values())
        pool = _start_workers(width, threads)
        try:
            calls = [
                pool.submit(_run_marked, key, task.payload, task.limit, task.trial.threads, marks)
                for key, task in waiting.items()
            ]
            for call in as_completed(calls):
                key, outcome = call.result()
                yield waiting.pop(key), outcome
        except BrokenProcessPool:
            suspects = [mark for mark in sorted(marks.iterdir()) if mark.stem in waiting]
            if not suspects:
                raise AssayError("the worker processes die before any trial starts") from None
            for mark in suspects:
                task = waiting.pop(mark.stem)
                yield (
                    task,
                    _late(task, mark) or _run_in_own_process(task.payload, task.limit, task.trial.threads, "cpu"),
                )
        finally:
            if waiting:
                pool.shutdown(wait=False, kill_workers=True)
            shutil.rmtree(marks, ignore_errors=True)


def _start_workers(width: int, threads: int) -> Any:
    """Start joblib's pool of processes, deaf to Ctrl-C: it is this process that stops, says so, and ends them."""
    from joblib.executor import get_memmapping_executor  # joblib's own way to it: `joblib.Parallel` finds what it made

    pool = get_memmapping_executor(width, env=dict.fromkeys(THREAD_VARIABLES, str(threads)))
    with _children_deaf_to_interrupts():
        for call in [pool.submit(_settle_worker) for _ in range(width)]:
            call.result()
    return pool


@contextmanager
def _children_deaf_to_interrupts() -> Iterator[None]:
    """Let processes start that never hear Ctrl-C, which a terminal sends to all; to this thread it comes at the end."""
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


def _late(task: _Task, mark: Path) -> _Outcome | None:
    """The outcome of a trial that ended its process because its time was up; None for one that ended with the pool."""
    started = mark.stat().st_mtime
    if mark.suffix != LATE and time.time() - started < task.limit + GRACE_SECONDS / 2:
        return None
    when = datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds")
    return _Outcome("timed out", {}, task.limit, when, _too_long(task.limit), {}, _environment())


def _run_marked(key: str, payload: bytes, limit: float, threads: int, marks: Path) -> tuple[str, _Outcome]:
    """Run in a pool's worker, leaving a mark while the trial runs."""
    mark = marks / key
    mark.touch()
    _settle_worker()
    outcome = _execute(payload, limit, threads, device="cpu", at_limit=lambda: mark.rename(mark.with_suffix(LATE)))
    mark.unlink(missing_ok=True)
    return key, outcome


@cache
def _settle_worker() -> None:
    """Keep what trials print out of the standard output that belongs to the command, and end with the parent."""
    os.dup2(2, 1)
    _end_with(os.getppid())


def _end_with(parent: int) -> None:
    """End this process soon after its parent, which may be killed without a chance to say so."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_on_ray(tasks: list[_Task], jobs: int, *, address: str | None) -> Iterator[Finished]:
    try:
        import ray
    except ImportError as error:
        raise MissingPackageError("ray", what="--on ray", extra="ray") from error
    started = not ray.is_initialized()
    try:
        if started and address is None:
            ray.init(num_cpus=jobs, include_dashboard=False, log_to_driver=False, configure_logging=False)
        elif started:
            ray.init(address=address, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(
            f"no Ray cluster at '{address}': {error}", expected="the address of a running cluster"
        ) from error
    try:
        remote = ray.remote(max_retries=0)(_run_in_own_process)
        pending: dict[Any, _Task] = {}
        for task in tasks:
            options = remote.options(num_cpus=task.trial.threads, num_gpus=int(task.trial.gpu))
            device = "cuda" if task.trial.gpu else "cpu"
            pending[options.remote(task.payload, task.limit, task.trial.threads, device)] = task
        while pending:
            ready, _ = ray.wait(list(pending), num_returns=1)
            task = pending.pop(ready[0])
            try:
                yield task, ray.get(ready[0])
            except ray.exceptions.RayError as error:
                yield task, _lost(str(error))
    finally:
        if started:
            ray.shutdown()


def _run_on_dask(tasks: list[_Task], jobs: int, *, address: str | None) -> Iterator[Finished]:
    try:
        from distributed import Client, LocalCluster, as_completed
    except ImportError as error:
        raise MissingPackageError("distributed", what="--on dask", extra="dask") from error
    cluster = None
    if address is None:
        cluster = LocalCluster(n_workers=1, threads_per_worker=jobs, dashboard_address=None)
    try:
        client = Client(cluster if cluster is not None else address)
    except OSError as error:
        raise InputError(f"no Dask scheduler at '{address}'", expected="the address of a running scheduler") from error
    try:
        pending: dict[Any, _Task] = {}
        for task in tasks:
            device = "cuda" if task.trial.gpu else "cpu"
            resources = {"GPU": 1} if task.trial.gpu else None
            arguments = (task.payload, task.limit, task.trial.threads, device)
            pending[client.submit(_run_in_own_process, *arguments, pure=False, resources=resources)] = task
        for future in as_completed(list(pending)):
            raised = future.exception()
            yield pending.pop(future), future.result() if raised is None else _lost(str(raised))
    finally:
        client.close()
        if cluster is not None:
            cluster.close()


def _lost(reason: str) -> _Outcome:
    return _Outcome("died", {}, math.nan, _now(), reason, {}, describe_environment())


def _payload(function: Callable[..., Any], trial: Trial, *, by_value: bool) -> bytes:
    """Pickle a trial; a user's own function travels by value to machines that don't have its module."""
    import cloudpickle

    module = sys.modules.get(getattr(trial.function, "__module__", ""))
    if not (by_value and module is not None):
        return cloudpickle.dumps((function, trial))  # type: ignore[no-any-return]
    cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps((function, trial))  # type: ignore[no-any-return]
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _execute(
    payload: bytes, limit: float, threads: int, *, device: str, at_limit: Callable[[], Any] = lambda: None
) -> _Outcome:
    """Run a trial in this process; whatever it raises becomes its record, and its time limit ends the process."""
    from threadpoolctl import threadpool_limits

    started, clock = _now(), time.perf_counter()
    status: Status = "done"
    measurements: dict[str, float] = {}
    error, artifacts = "", {}
    try:
        function, trial = pickle.loads(payload)
        trial.device = device
        with threadpool_limits(threads), _time_limit(limit, at_limit):
            measurements = _numbers(function(trial))
            artifacts = trial.artifacts
    except Exception:
        status, error = "failed", traceback.format_exc()
    seconds = time.perf_counter() - clock
    return _Outcome(status, measurements, seconds, started, error, artifacts, _environment())


def _numbers(measurements: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(measurements, Mapping):
        raise TypeError(f"the trial function returned {type(measurements).__name__}, not a mapping of names to numbers")
    return {str(name): float(value) for name, value in measurements.items()}


@contextmanager
def _time_limit(seconds: float, at_limit: Callable[[], Any]) -> Iterator[None]:
    """End this process after some seconds, having called `at_limit`.

    Raising in the trial instead could stop a compiler or an allocator half-way, in a process that runs further trials.
    Compiled code that doesn't return to Python is ended some seconds later, without `at_limit`.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(_signal: int, _frame: Any) -> None:
        at_limit()
        os._exit(1)

    earlier = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + GRACE_SECONDS, exit=True, file=2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, earlier)


def _too_long(limit: float) -> str:
    return f"took longer than {limit:g} s"


def _run_in_own_process(payload: bytes, limit: float, threads: int, device: str) -> _Outcome:
    """Run a trial in a new process, which is ended when the trial takes too long."""
    started, clock = _now(), time.perf_counter()
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    with tempfile.TemporaryDirectory(prefix="assay-trial-") as folder:
        task, answer = Path(folder, "task"), Path(folder, "answer")
        task.write_bytes(pickle.dumps((sys.path, payload, limit, threads, device)))
        command = [sys.executable, "-c", f"from {__name__} import _serve; _serve()", str(task), str(answer)]
        with _children_deaf_to_interrupts():
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        status: Status = "died"
        try:
            _, stderr = process.communicate(timeout=limit + 2 * GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            _, stderr = process.communicate()
            status = "timed out"
        except BaseException:
            process.kill()
            process.wait()
            raise
        if answer.exists():
            outcome: _Outcome = pickle.loads(answer.read_bytes())
            return outcome
    seconds = time.perf_counter() - clock
    if seconds > limit:
        status, reason = "timed out", _too_long(limit)
    else:
        reason = f"its process ended with status {process.returncode}"
    tail = stderr.decode(errors="replace")[-STDERR_TAIL:]
    return _Outcome(status, {}, seconds, started, f"{reason}\n{tail}".strip(), {}, _environment())


def _serve() -> None:
    """Answer one trial in a process of its own; the command line names the task's file and the answer's."""
    task, answer = Path(sys.argv[1]), Path(sys.argv[2])
    path, payload, limit, threads, device = pickle.loads(task.read_bytes())
    sys.path[:] = path
    _end_with(os.getppid())
    outcome = _execute(payload, limit, threads, device=device)
    temporary = answer.with_suffix(".part")
    temporary.write_bytes(pickle.dumps(outcome))
    temporary.rename(answer)


class _Gpus:
    """Gives each trial that asks for one a device of its own, and makes it wait until one is free."""

    def __init__(self, count: int) -> None:
        self._free: queue.SimpleQueue[str] = queue.SimpleQueue()
        for index in range(count):
            self._free.put(f"cuda:{index}")

    @contextmanager
    def one(self, wanted: bool) -> Iterator[str]:
        """Hold a device while the block runs; "cpu" for a trial that wants none."""
        if not wanted:
            yield "cpu"
            return
        device = self._free.get()
        try:
            yield device
        finally:
            self._free.put(device)


@cache
def _environment() -> dict[str, Any]:
    return describe_environment()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

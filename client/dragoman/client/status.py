"""What servers are doing: reachable, ready, which bundles, and how busy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tritonclient.grpc import service_pb2

from dragoman.client.calls import Calls
from dragoman.client.messages import Reply, foreign_answer, infer_request
from dragoman.client.prometheus import Scrape, beside, metrics_url_of, scrape
from dragoman.client.settings import CHECK_TIMEOUT_S
from dragoman.client.transport import Transport
from dragoman.errors import RequestError, TransportError
from dragoman.wire import MODELS, SERVER_STATUS, STATUS

__all__ = ["Activity", "BundleStatus", "ModelStatus", "ServerStatus", "find_metrics", "server_status"]


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One of Triton's models; `versions` are those that Triton has loaded."""

    name: str
    ready: bool
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BundleStatus:
    """A bundle that the server has loaded; `name` is what requests call it, `model` what it is a copy of."""

    name: str
    model: str
    version: str
    architecture: str
    parameters: int
    precision: str
    source_languages: tuple[str, ...]
    target_languages: tuple[str, ...]
    shortlists: Mapping[str, int] = field(default_factory=dict)
    """How many tokens can be generated into each target language that has a list."""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> BundleStatus:
        """One of `STATUS.bundles`."""
        return cls(
            name=str(raw["name"]),
            model=str(raw["model"] or ""),  # null while its first engine is starting
            version=str(raw["version"] or ""),
            architecture=str(raw["architecture"] or ""),
            parameters=int(raw["parameters"] or 0),
            precision=str(raw["precision"] or ""),
            source_languages=tuple(map(str, raw["source_languages"])),
            target_languages=tuple(map(str, raw["target_languages"])),
            shortlists={
                str(code): int(count) for code, count in raw.get("shortlists", {}).items()
            },  # none from older servers
        )


@dataclass(frozen=True, slots=True)
class Activity:
    """What one bundle's engine did while it was watched; rates are per second."""

    bundle: str
    requests: float
    failures: float
    texts: float
    source_tokens: float
    target_tokens: float
    running: float
    queued: float
    occupancy: float
    cache_hits: float


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One server. `problem` is why it can't be used, `metrics_problem` why nothing is known about its activity."""

    address: str
    ready: bool
    triton: str = ""
    dragoman: str = ""
    models: tuple[ModelStatus, ...] = ()
    bundles: tuple[BundleStatus, ...] = ()
    activity: tuple[Activity, ...] = ()
    metrics: str | None = None
    problem: str | None = None
    metrics_problem: str | None = None


async def server_status(transport: Transport, server: int, metrics_url: str | None, watch_s: float) -> ServerStatus:
    """Query one server; its activity is measured over `watch_s`."""
    address = transport.address(server)
    try:
        triton = await transport.ask("ServerMetadata", service_pb2.ServerMetadataRequest(), server, CHECK_TIMEOUT_S)
        ready = (await transport.ask("ServerReady", service_pb2.ServerReadyRequest(), server, CHECK_TIMEOUT_S)).ready
        models = tuple([await _model_status(transport, server, model.name) for model in MODELS])
        usable = ready and all(model.ready for model in models)
        status = await _ask_status(transport, server) if usable else {"server": "", "bundles": [], "metrics": None}
        bundles = tuple(BundleStatus.from_json(raw) for raw in status["bundles"])
    except RequestError as error:
        return ServerStatus(address, False, problem=str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return ServerStatus(address, False, problem=str(foreign_answer(f"its STATUS can't be read ({error!r})")))
    problem = None if usable else "not every model is ready: the server is starting or stopping, or it is not dragoman's"
    url = metrics_url or _metrics_in(status, address)
    activity, metrics_problem = await _activity(url, watch_s, transport.calls)
    return ServerStatus(
        *(address, usable, f"{triton.name} {triton.version}", str(status["server"]), models, bundles, activity),
        *(url, problem, metrics_problem),
    )


async def find_metrics(transport: Transport, server: int) -> str:
    """The server's own metrics address; without one, the usual port beside it."""
    address = transport.address(server)
    try:
        return _metrics_in(await _ask_status(transport, server), address)
    except RequestError:
        return metrics_url_of(address)


def _metrics_in(status: Mapping[str, Any], address: str) -> str:
    named = status.get("metrics")
    return beside(str(named), address) if named else metrics_url_of(address)


async def _ask_status(transport: Transport, server: int) -> dict[str, Any]:
    response = await transport.ask("ModelInfer", infer_request(SERVER_STATUS, {}), server, CHECK_TIMEOUT_S)
    return Reply(response).about(STATUS.name)


async def _model_status(transport: Transport, server: int, name: str) -> ModelStatus:
    request = service_pb2.ModelReadyRequest(name=name)
    if not (await transport.ask("ModelReady", request, server, CHECK_TIMEOUT_S)).ready:
        return ModelStatus(name, False, ())
    metadata = await transport.ask("ModelMetadata", service_pb2.ModelMetadataRequest(name=name), server, CHECK_TIMEOUT_S)
    return ModelStatus(name, True, tuple(metadata.versions))


async def _activity(url: str, watch_s: float, calls: Calls) -> tuple[tuple[Activity, ...], str | None]:
    try:
        earlier = scrape(url)
        await calls.sleep(watch_s)
        now = scrape(url)
    except TransportError as error:
        return (), str(error)
    bundles = now.label_values("dragoman_texts_total", "model") or now.label_values("dragoman_running_requests", "model")
    return tuple(_activity_of(bundle, earlier, now) for bundle in bundles), None


def _activity_of(bundle: str, earlier: Scrape, now: Scrape) -> Activity:
    def rate(name: str, **labels: str) -> float:
        return now.rate(earlier, name, model=bundle, **labels)

    requests = rate("dragoman_requests_total")
    return Activity(
        bundle=bundle,
        requests=requests,
        failures=max(requests - rate("dragoman_requests_total", outcome="ok"), 0.0),
        texts=rate("dragoman_texts_total"),
        source_tokens=rate("dragoman_source_tokens_total"),
        target_tokens=rate("dragoman_target_tokens_total"),
        running=now.total("dragoman_running_requests", model=bundle),
        queued=now.total("dragoman_queued_requests", model=bundle),
        occupancy=now.total("dragoman_batch_occupancy", model=bundle),
        cache_hits=rate("dragoman_response_cache_hits_total"),
    )

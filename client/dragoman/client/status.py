"""What servers are doing: reachable, ready, which models and versions, and how busy."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tritonclient.grpc import service_pb2

from dragoman.client.prometheus import Scrape, metrics_url_of, scrape
from dragoman.client.settings import CHECK_TIMEOUT_S
from dragoman.client.transport import Transport
from dragoman.errors import RequestError, TransportError
from dragoman.wire import MODELS

__all__ = ["Activity", "ModelStatus", "ServerStatus", "server_status"]


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One of Triton's models; `versions` are those that Triton has loaded."""

    name: str
    ready: bool
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Activity:
    """What one bundle's engine did while it was watched; rates are a second."""

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
    """One server. `problem` says why it can't be used, `metrics_problem` why nothing is known about its activity."""

    address: str
    ready: bool
    triton: str
    models: tuple[ModelStatus, ...]
    activity: tuple[Activity, ...]
    problem: str | None = None
    metrics_problem: str | None = None


def server_status(transport: Transport, server: int, metrics_url: str | None, watch_s: float) -> ServerStatus:
    """Ask one server; its activity is measured over `watch_s`."""
    address = transport.address(server)
    try:
        about = transport.ask("ServerMetadata", service_pb2.ServerMetadataRequest(), server, CHECK_TIMEOUT_S)
        ready = transport.ask("ServerReady", service_pb2.ServerReadyRequest(), server, CHECK_TIMEOUT_S).ready
        models = tuple(_model_status(transport, server, model.name) for model in MODELS)
    except RequestError as error:
        return ServerStatus(address, False, "", (), (), problem=str(error))
    usable = ready and all(model.ready for model in models)
    problem = None if usable else "not every model is ready: the server is starting, stopping, or is not dragoman's"
    activity, metrics_problem = _activity(metrics_url or metrics_url_of(address), watch_s)
    return ServerStatus(address, usable, f"{about.name} {about.version}", models, activity, problem, metrics_problem)


def _model_status(transport: Transport, server: int, name: str) -> ModelStatus:
    request = service_pb2.ModelReadyRequest(name=name)
    if not transport.ask("ModelReady", request, server, CHECK_TIMEOUT_S).ready:
        return ModelStatus(name, False, ())
    about = transport.ask("ModelMetadata", service_pb2.ModelMetadataRequest(name=name), server, CHECK_TIMEOUT_S)
    return ModelStatus(name, True, tuple(about.versions))


def _activity(url: str, watch_s: float) -> tuple[tuple[Activity, ...], str | None]:
    try:
        earlier = scrape(url)
        time.sleep(watch_s)
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

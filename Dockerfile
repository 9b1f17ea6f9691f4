# syntax=docker/dockerfile:1
# Three images from one source: `serving` (the official Triton and the serving part), `export` (torch) and `client`.
#   docker build --target serving --build-arg EXTRA=container-gpu .
# The defaults below are those of deploy/versions.toml; a digest pins an image for good.
ARG TRITON_IMAGE=nvcr.io/nvidia/tritonserver
ARG TRITON_TAG=26.07-py3
ARG TRITON_DIGEST=
ARG PYTHON_IMAGE=python:3.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /source
# Compiles what is in C++; the images that install the wheel need no compiler.
ENV CXX=g++
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN python -m pip install --no-cache-dir hatchling==1.33.0
COPY pyproject.toml README.md LICENSE hatch_build.py ./
COPY core core
COPY client client
COPY export export
COPY native native
COPY serving serving
COPY model_repository model_repository
RUN python -m hatchling build --target wheel --directory /wheels

FROM ${PYTHON_IMAGE} AS client
COPY constraints/python3.12.txt /constraints.txt
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    python -m pip install --no-cache-dir --constraint /constraints.txt /wheels/*.whl
USER 10001:10001
WORKDIR /work
ENTRYPOINT ["dragoman"]
CMD ["--help"]

FROM ${PYTHON_IMAGE} AS export
COPY constraints/python3.12.txt /constraints.txt
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    python -m pip install --no-cache-dir --constraint /constraints.txt "$(echo /wheels/*.whl)[export,tensorrt]"
USER 10001:10001
WORKDIR /work
ENTRYPOINT ["dragoman"]
CMD ["export", "--help"]

FROM ${TRITON_IMAGE}:${TRITON_TAG}${TRITON_DIGEST:+@${TRITON_DIGEST}} AS serving
# container; container-gpu: TensorRT-RTX; or container-cuda: ONNX Runtime with its CUDA provider.
ARG EXTRA=container
COPY constraints/python3.12.txt /constraints.txt
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    python3 -m pip install --no-cache-dir --break-system-packages --constraint /constraints.txt \
        "$(echo /wheels/*.whl)[${EXTRA}]"
# Nothing else is written outside /tmp, which compose and the Helm chart mount: the file system can be read-only.
ENV TMPDIR=/tmp PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 8001 8002
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=10s --start-period=120s --retries=3 CMD ["dragoman", "probe", "--live", "--server", "127.0.0.1:8001"]
ENTRYPOINT ["dragoman"]
CMD ["serve", "--bundle", "/bundles/default", "--grpc-address", "0.0.0.0:8001", "--metrics-address", "0.0.0.0:8002"]

# syntax=docker/dockerfile:1

FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY requirements/run.txt requirements/run.txt
RUN python -m venv /opt/outlast \
 && /opt/outlast/bin/python -m pip install --require-hashes --only-binary=:all: -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY alembic alembic
RUN python -m pip wheel --no-deps --wheel-dir /dist . \
 && /opt/outlast/bin/python -m pip install --no-deps --no-index /dist/outlast-*.whl \
 && /opt/outlast/bin/python -m pip uninstall --yes pip

FROM python:3.13-slim
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Outlast" \
      org.opencontainers.image.description="A durable background-job service on PostgreSQL" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN groupadd --gid 10001 outlast \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin outlast
COPY --from=build /opt/outlast /opt/outlast
# Python writes nothing: the image runs on a read-only file system.
ENV PATH=/opt/outlast/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    OUTLAST_BIND=0.0.0.0:8080 \
    OUTLAST_LOG_FORMAT=json
USER 10001:10001
WORKDIR /srv
EXPOSE 8080
STOPSIGNAL SIGTERM
# The admin listener answers in every role, on a thread of its own, while a busy or draining process still lives.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8081/livez', timeout=2)"]
ENTRYPOINT ["outlast"]
CMD ["--help"]

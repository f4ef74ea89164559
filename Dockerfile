# docker build -t formwork . && docker run -p 8000:8000 formwork
# A model of your own: docker run -p 8000:8000 -v /path/to/model:/model:ro formwork serve /model
FROM rust:1-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc g++ libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# With traces: --build-arg FEATURES=engine-frontend/opentelemetry
ARG FEATURES=""
# No debug information: it is more than four fifths of the executables.
ENV CARGO_PROFILE_DIST_DEBUG=0 CARGO_PROFILE_DIST_STRIP=true
RUN cargo build --profile dist --locked -p engine-core -p engine-frontend --bins --features "$FEATURES"

FROM debian:bookworm-slim
# To know the Hugging Face Hub by.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/target/dist/formwork /src/target/dist/formwork-batch /src/target/dist/formwork-engine-core /usr/local/bin/
RUN useradd --system --uid 10001 --user-group --no-create-home formwork && install -d -o formwork -g formwork /models
# Models of the Hub: docker run -p 8000:8000 -v formwork-models:/models formwork serve Qwen/Qwen3-0.6B
ENV HF_HOME=/models
USER 10001:10001
# Published ports lead to all of the container's addresses.
ENV FORMWORK_HOST=0.0.0.0
EXPOSE 8000
STOPSIGNAL SIGTERM
# For the health check, which asks the server that holds this file.
ENV FORMWORK_PID_FILE=/tmp/formwork.pid
HEALTHCHECK --start-period=10m --start-interval=5s --interval=10s CMD ["formwork", "status", "--pid-file", "/tmp/formwork.pid"]
ENTRYPOINT ["formwork"]
CMD ["serve"]

# A worker that computes on the CPU: for trying things out, for small models, for clusters without GPUs. UCX is loaded when it is asked for.
#   docker build -f images/worker-cpu.Dockerfile --build-arg BATON_COMMIT=$(git describe --always --dirty=+) -t baton/worker-cpu .
# amd64 (AVX-512 or AVX2 by the CPU, else portable code) and arm64 (portable code). Runs as 65532 on a read-only root; writes nothing.
FROM debian:12-slim AS build
WORKDIR /src
COPY scripts/packages scripts/
RUN scripts/packages
COPY . .
ARG BATON_COMMIT=""
RUN --mount=type=cache,target=/root/.cache/ccache \
    cmake -S . -B build/image -G Ninja -DCMAKE_BUILD_TYPE=Release -DBATON_CUDA=OFF -DBATON_TESTS=OFF -DBATON_BENCH=OFF \
      -DBATON_COMMIT="$BATON_COMMIT" \
    && cmake --build build/image --target baton-worker \
    && install -s build/image/bin/baton-worker /usr/local/bin/

FROM debian:12-slim
LABEL org.opencontainers.image.title="baton-worker on CPU" org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
    && apt-get install -y --no-install-recommends libpcre2-8-0 libprometheus-cpp-core1.0 libssl3 libucx0 libutf8proc2 libxxhash0 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY --from=build /usr/local/bin/baton-worker /usr/local/bin/
USER 65532:65532
EXPOSE 7100 9100
ENTRYPOINT ["baton-worker"]

# The router: HTTP, text, placement, the chat page. No CUDA, no UCX, no weights: it reads a model's tokeniser and configuration.
#   docker build -f images/router.Dockerfile --build-arg BATON_COMMIT=$(git describe --always --dirty=+) -t baton/router .
# amd64 and arm64. Runs as 65532 on a read-only root; writes nothing. docs/operations.md, "Images".
FROM debian:12-slim AS build
WORKDIR /src
COPY scripts/packages scripts/
RUN scripts/packages
COPY . .
ARG BATON_COMMIT=""
RUN --mount=type=cache,target=/root/.cache/ccache \
    cmake -S . -B build/image -G Ninja -DCMAKE_BUILD_TYPE=Release -DBATON_CUDA=OFF -DBATON_TESTS=OFF -DBATON_BENCH=OFF \
      -DBATON_COMMIT="$BATON_COMMIT" \
    && cmake --build build/image --target baton-router \
    && install -s build/image/bin/baton-router /usr/local/bin/

FROM debian:12-slim
LABEL org.opencontainers.image.title="baton-router" org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
    && apt-get install -y --no-install-recommends libpcre2-8-0 libprometheus-cpp-core1.0 libsimdjson14 libssl3 libutf8proc2 libxxhash0 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY --from=build /usr/local/bin/baton-router /usr/local/bin/
USER 65532:65532
EXPOSE 8000
ENTRYPOINT ["baton-router"]

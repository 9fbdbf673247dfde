# A worker on NVIDIA GPUs. The driver comes from the host (NVIDIA container toolkit, CUDA 13.0 or later).
#   docker build -f images/worker-cuda.Dockerfile --build-arg BATON_COMMIT=$(git describe --always --dirty=+) -t baton/worker-cuda .
# amd64 and arm64. Runs as 65532 on a read-only root; writes nothing.
FROM debian:12-slim AS build
WORKDIR /src
COPY scripts/packages scripts/
RUN scripts/packages
# CUDA from NVIDIA's wheels: the same for both architectures, and only the parts that are used.
COPY images/cuda-wheels.txt images/
RUN pip3 install --quiet --no-cache-dir --no-deps --target /opt/wheels -r images/cuda-wheels.txt \
    && mv /opt/wheels/nvidia/cu13 /usr/local/cuda \
    && ln -s lib /usr/local/cuda/lib64 \
    && ln -s libcublasLt.so.13 /usr/local/cuda/lib/libcublasLt.so \
    && ln -s libcudart.so.13 /usr/local/cuda/lib/libcudart.so
COPY . .
ARG BATON_COMMIT=""
RUN --mount=type=cache,target=/root/.cache/ccache \
    cmake -S . -B build/image -G Ninja -DCMAKE_BUILD_TYPE=Release -DBATON_CUDA=ON -DBATON_TESTS=OFF -DBATON_BENCH=OFF \
      -DBATON_COMMIT="$BATON_COMMIT" -DCMAKE_SKIP_RPATH=ON \
    && cmake --build build/image --target baton-worker \
    && install -s build/image/bin/baton-worker /usr/local/bin/

FROM debian:12-slim
LABEL org.opencontainers.image.title="baton-worker on CUDA" org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
    && apt-get install -y --no-install-recommends libpcre2-8-0 libprometheus-cpp-core1.0 libssl3 libutf8proc2 libxxhash0 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY --from=build /usr/local/cuda/lib/libcublasLt.so.13 /usr/local/lib/
RUN ldconfig
COPY --from=build /usr/local/bin/baton-worker /usr/local/bin/
# To the container toolkit: all GPUs of the pod, the driver's compute part and NVML.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532
EXPOSE 7100 9100
ENTRYPOINT ["baton-worker"]

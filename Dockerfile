# One image for serving and migrating. Without DATABASE_URL it runs its own Postgres in /var/lib/fermata.
ARG PYTHON_IMAGE=python:3.12-slim

FROM ${PYTHON_IMAGE} AS packages
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/fermata
COPY requirements.txt .
RUN /opt/fermata/bin/pip install --no-deps --require-hashes -r requirements.txt

FROM ${PYTHON_IMAGE}
RUN groupadd --system --gid 10001 fermata \
 && useradd --system --uid 10001 --gid fermata --home-dir /var/lib/fermata --shell /usr/sbin/nologin fermata \
 && install --directory --owner fermata --group fermata --mode 0700 /var/lib/fermata
COPY --from=packages /opt/fermata /opt/fermata
WORKDIR /srv/fermata
COPY . .
RUN /opt/fermata/bin/python -m compileall -q app migrations

# A container that listens on its own loopback alone would be of no use, so it listens on every address. The service
# refuses to start like that until FERMATA_API_KEYS names the keys that may call it; SECURITY.md shows how to make one.
ENV PATH=/opt/fermata/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    FERMATA_HOST=0.0.0.0 \
    FERMATA_PORT=8000 \
    FERMATA_DATA_DIR=/var/lib/fermata
USER fermata
VOLUME /var/lib/fermata
EXPOSE 8000
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['FERMATA_PORT'] + '/healthz', timeout=2)"]
CMD ["python", "-m", "app", "serve"]

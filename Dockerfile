# The workbench in a container; compose.yaml starts it beside Ollama and Chroma.
FROM python:3.12-slim

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1
WORKDIR /app

COPY requirements.txt .
RUN pip install -r requirements.txt

COPY . .
RUN useradd --create-home workbench && mkdir /data && chown workbench /data
USER workbench
VOLUME /data

# Every interface of the container; compose.yaml says which of the host's it is published on.
ENV STREAMLIT_SERVER_ADDRESS=0.0.0.0 CEMS_WORKBENCH_STORE=/data/store
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://localhost:8501/_stcore/health', timeout=4)"]
CMD ["python", "-m", "cems_workbench", "app", "--headless", "--port", "8501"]

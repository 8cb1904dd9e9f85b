# The agui-relay command; by default a worker.
FROM python:3.13-slim
RUN pip install --no-cache-dir uv
WORKDIR /app
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY src src
RUN uv sync --locked --no-dev --no-editable --no-cache
ENV PATH="/app/.venv/bin:$PATH" PYTHONUNBUFFERED=1
USER nobody
ENTRYPOINT ["agui-relay"]
CMD ["worker"]

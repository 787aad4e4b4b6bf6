/* An OpenAI-compatible server without a model: the backends of the routers that the gateway is compared with.

     mock FIRST_PORT COUNT

   COUNT backends in one process, on neighbouring ports. As an engine does, each says one token of every stream in every
   step; its steps begin at its own moments. A request says in its prompt how long its steps are, `@mock itl_us=25000`
   (0: as fast as the socket takes them, a write for each token), and in `max_tokens` how many there are. */
#include "wire.h"

enum { MOST_BACKENDS = 64, READ_BYTES = 16384, AT_ONCE = 4 };

typedef struct Stream {
  int fd, backend, paused, dead, closes, active, streamed, chat, usage;
  int tokens, said, prompt_tokens;
  uint64_t step_ns, due_ns, came_ns;
  char *in, *out, model[128], id[40];
  size_t in_bytes, in_room, out_bytes, out_sent, out_room;
  int at; /* its place among the open ones */
} Stream;

static int epoll, first_port, backends;
static Stream **open_streams;
static int open_count, open_room;
static uint64_t next_id;

static void say(Stream *s, const char *bytes, size_t count) {
  if (s->out_sent == s->out_bytes) s->out_sent = s->out_bytes = 0;
  if (s->out_bytes + count > s->out_room) {
    s->out_room = (s->out_bytes + count) * 2 + 1024;
    s->out = owned(realloc(s->out, s->out_room));
  }
  memcpy(s->out + s->out_bytes, bytes, count);
  s->out_bytes += count;
}

static void say_chunk(Stream *s, const char *bytes, size_t count) {
  char head[16];
  say(s, head, (size_t)snprintf(head, sizeof head, "%zx\r\n", count));
  say(s, bytes, count);
  say(s, "\r\n", 2);
}

static void watch(Stream *s, int writing) {
  struct epoll_event wanted = {.events = EPOLLIN | EPOLLRDHUP | (writing ? EPOLLOUT : 0u), .data.ptr = s};
  epoll_ctl(epoll, EPOLL_CTL_MOD, s->fd, &wanted);
  s->paused = writing;
}

static void flush_out(Stream *s) {
  while (s->out_sent < s->out_bytes) {
    ssize_t sent = send(s->fd, s->out + s->out_sent, s->out_bytes - s->out_sent, MSG_NOSIGNAL);
    if (sent > 0) { s->out_sent += (size_t)sent; continue; }
    if (sent < 0 && errno == EAGAIN) { if (!s->paused) watch(s, 1); return; }
    s->dead = 1;
    return;
  }
  if (s->paused) watch(s, 0);
}

static void answer(Stream *s, const char *type, const char *body, size_t count) {
  char head[256];
  const char *closing = s->closes ? "connection: close\r\n" : "";
  int length = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %zu\r\n%s\r\n", type,
                        count, closing);
  say(s, head, (size_t)length);
  say(s, body, count);
  flush_out(s);
}

static void stamp(const Stream *s, char *text, size_t room) {
  if (s->said) snprintf(text, room, " @%llu", (unsigned long long)now_ns());
  else snprintf(text, room, " @%llu/%llu", (unsigned long long)now_ns(), (unsigned long long)s->came_ns);
}

/* An event of a stream: its beginning is always the same. */
static void event(Stream *s, const char *rest) {
  char text[768];
  const char *object = s->chat ? "chat.completion.chunk" : "text_completion";
  int length = snprintf(text, sizeof text,
                        "data: {\"id\":\"%s\",\"object\":\"%s\",\"created\":1700000000,\"model\":\"%s\",%s}\n\n", s->id,
                        object, s->model, rest);
  say_chunk(s, text, (size_t)length);
}

static void end_stream(Stream *s) {
  char rest[160];
  snprintf(rest, sizeof rest, "\"choices\":[{\"index\":0,%s,\"logprobs\":null,\"finish_reason\":\"length\"}]",
           s->chat ? "\"delta\":{}" : "\"text\":\"\"");
  event(s, rest);
  if (s->usage) {
    snprintf(rest, sizeof rest, "\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}",
             s->prompt_tokens, s->tokens, s->prompt_tokens + s->tokens);
    event(s, rest);
  }
  say_chunk(s, "data: [DONE]\n\n", 14);
  say(s, "0\r\n\r\n", 5);
  s->active = 0;
}

static void token(Stream *s) {
  char text[64], rest[256];
  stamp(s, text, sizeof text);
  const char *role = s->said ? "" : "\"role\":\"assistant\",";
  if (s->chat) snprintf(rest, sizeof rest, "\"choices\":[{\"index\":0,\"delta\":{%s\"content\":\"%s\"},\"logprobs\":null,\"finish_reason\":null}]", role, text);
  else snprintf(rest, sizeof rest, "\"choices\":[{\"index\":0,\"text\":\"%s\",\"logprobs\":null,\"finish_reason\":null}]", text);
  event(s, rest);
  if (++s->said == s->tokens) end_stream(s);
  flush_out(s);
}

static void whole(Stream *s) {
  char text[64], body[512];
  stamp(s, text, sizeof text);
  int length = snprintf(body, sizeof body,
      "{\"id\":\"%s\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"%s\",\"choices\":[{\"index\":0,"
      "\"message\":{\"role\":\"assistant\",\"content\":\"%s\"},\"logprobs\":null,\"finish_reason\":\"length\"}],"
      "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}}",
      s->id, s->model, text, s->prompt_tokens, s->tokens, s->prompt_tokens + s->tokens);
  s->active = 0;
  answer(s, "application/json", body, (size_t)length);
}

static const char *value_of(const char *body, const char *name) {
  const char *at = strstr(body, name);
  if (!at) return "";
  at += strlen(name);
  while (*at == ' ' || *at == ':') at++;
  return at;
}

static uint64_t next_step(const Stream *s, uint64_t after_ns) {
  uint64_t offset = s->step_ns * (uint64_t)s->backend / (uint64_t)backends;
  return ((after_ns - offset) / s->step_ns + 1) * s->step_ns + offset;
}

static void generate(Stream *s, const char *path, const char *body, size_t count) {
  s->chat = strstr(path, "chat") != NULL;
  const char *model = value_of(body, "\"model\"");
  size_t length = *model == '"' ? strcspn(++model, "\"") : 0;
  snprintf(s->model, sizeof s->model, "%.*s", (int)(length < sizeof s->model ? length : 0), model);
  s->streamed = *value_of(body, "\"stream\"") == 't';
  s->usage = *value_of(body, "\"include_usage\"") == 't';
  s->tokens = atoi(value_of(body, "\"max_tokens\""));
  if (s->tokens < 1) s->tokens = atoi(value_of(body, "\"max_completion_tokens\"")); /* some routers rename it */
  if (s->tokens < 1) s->tokens = 1;
  const char *knob = strstr(body, "@mock itl_us=");
  s->step_ns = knob ? strtoull(knob + 13, NULL, 10) * 1000 : 0;
  s->prompt_tokens = (int)(count / 4);
  s->said = 0;
  s->active = 1;
  snprintf(s->id, sizeof s->id, "chatcmpl-%016llx", (unsigned long long)++next_id);
  s->due_ns = s->step_ns ? next_step(s, s->came_ns) : s->came_ns;
  if (!s->streamed) {
    s->due_ns += s->step_ns * (uint64_t)(s->tokens - 1);
    return;
  }
  static const char HEAD[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
  say(s, HEAD, sizeof HEAD - 1);
}

static void serve(Stream *s, const char *path, const char *body, size_t count) {
  static const char MODELS[] = "{\"object\":\"list\",\"data\":[{\"id\":\"base\",\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"vllm\",\"root\":\"base\",\"parent\":null,\"max_model_len\":32768}]}";
  static const char INFO[] = "{\"model_id\":\"base\",\"model_path\":\"base\",\"served_model_name\":\"base\",\"tp_size\":1,\"dp_size\":1,\"is_generation\":true,\"max_total_num_tokens\":100000,\"version\":\"0.11.0\"}";
  s->came_ns = now_ns();
  if (strstr(path, "/completions")) generate(s, path, body, count);
  else if (!strncmp(path, "/v1/models", 10)) answer(s, "application/json", MODELS, sizeof MODELS - 1);
  else if (strstr(path, "info")) answer(s, "application/json", INFO, sizeof INFO - 1);
  else answer(s, "application/json", "{\"version\":\"0.11.0\",\"load\":0}", 29);
}

/* The chunks of a body in one piece, in place. Returns the bytes that they took, 0 if some are still to come. */
static size_t gather(char *bytes, size_t count, size_t *length) {
  char *at = bytes, *end = bytes + count;
  for (*length = 0;;) {
    char *line = memmem(at, (size_t)(end - at), "\r\n", 2);
    if (!line) return 0;
    size_t size = strtoul(at, NULL, 16);
    at = line + 2;
    if ((size_t)(end - at) < size + 2) return 0;
    memmove(bytes + *length, at, size);
    *length += size;
    at += size + 2;
    if (!size) return (size_t)(at - bytes);
  }
}

static int take_request(Stream *s) {
  s->in[s->in_bytes] = 0;
  char *end = memmem(s->in, s->in_bytes, "\r\n\r\n", 4), path[256];
  if (!end) return 0;
  *end = 0;
  int known = sscanf(s->in, "%*s %255s", path) == 1, chunked = strcasestr(s->in, "transfer-encoding: chunked") != NULL;
  const char *length = strcasestr(s->in, "content-length:");
  size_t head = (size_t)(end + 4 - s->in), count = length ? strtoul(length + 15, NULL, 10) : 0, taken = count;
  s->closes = strcasestr(s->in, "connection: close") != NULL;
  *end = '\r';
  if (!known) { s->dead = 1; return 0; }
  if (chunked ? !(taken = gather(s->in + head, s->in_bytes - head, &count)) : s->in_bytes < head + count) return 0;
  char after = s->in[head + count];
  s->in[head + count] = 0;
  serve(s, path, s->in + head, count);
  s->in[head + count] = after;
  s->in_bytes -= head + taken;
  memmove(s->in, s->in + head + taken, s->in_bytes);
  return 1;
}

static void read_in(Stream *s) {
  for (;;) {
    if (s->in_room - s->in_bytes < READ_BYTES) {
      s->in_room += 2 * READ_BYTES;
      s->in = owned(realloc(s->in, s->in_room + 1));
    }
    ssize_t count = recv(s->fd, s->in + s->in_bytes, s->in_room - s->in_bytes, 0);
    if (count > 0) s->in_bytes += (size_t)count;
    if (count == 0 || (count < 0 && errno != EAGAIN)) s->dead = 1;
    if (count < READ_BYTES) break;
  }
}

static void come(int listener, int backend) {
  for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Stream *s = owned(calloc(1, sizeof *s));
    *s = (Stream){.fd = fd, .backend = backend, .at = open_count};
    if (open_count == open_room) {
      open_room = open_room * 2 + 256;
      open_streams = owned(realloc(open_streams, (size_t)open_room * sizeof *open_streams));
    }
    open_streams[open_count++] = s;
    struct epoll_event wanted = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = s};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wanted);
  }
}

static void leave(Stream *s) {
  close(s->fd);
  open_streams[s->at] = open_streams[--open_count];
  open_streams[s->at]->at = s->at;
  free(s->in);
  free(s->out);
  free(s);
}

/* One step of this stream, if it is due. */
static void step(Stream *s, uint64_t now) {
  if (s->active && s->due_ns <= now) {
    if (!s->streamed) whole(s);
    else if (s->step_ns) {
      token(s);
      s->due_ns += s->step_ns;
    } else for (int at = 0; at < AT_ONCE && s->active && !s->dead && !s->paused; at++) token(s);
  }
  while (!s->active && !s->dead && s->in_bytes && take_request(s)) {}
  if (s->closes && !s->active && s->out_sent == s->out_bytes) s->dead = 1;
}

/* The next moment at which somebody has something to say. */
static uint64_t next_due(uint64_t now) {
  uint64_t due = now + 1000000000ull;
  for (int at = 0; at < open_count; at++) {
    Stream *s = open_streams[at];
    if (s->active && !s->paused && s->due_ns < due) due = s->due_ns;
  }
  return due;
}

int main(int count, char **words) {
  if (count != 3) { fputs("usage: mock FIRST_PORT COUNT\n", stderr); return 2; }
  first_port = atoi(words[1]), backends = atoi(words[2]);
  prctl(PR_SET_TIMERSLACK, 1);
  epoll = epoll_create1(0);
  int listeners[MOST_BACKENDS], on = 1;
  for (int at = 0; at < backends && at < MOST_BACKENDS; at++) {
    struct sockaddr_in where = loopback(first_port + at);
    listeners[at] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listeners[at], SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listeners[at], (struct sockaddr *)&where, sizeof where)) { perror("bind"); return 1; }
    listen(listeners[at], 4096);
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = &listeners[at]};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listeners[at], &wanted);
  }
  for (struct epoll_event events[256];;) {
    int happened = wait_until(epoll, events, 256, next_due(now_ns()));
    for (int at = 0; at < happened; at++) {
      int *listener = events[at].data.ptr;
      if (listener >= listeners && listener < listeners + MOST_BACKENDS) { come(*listener, (int)(listener - listeners)); continue; }
      Stream *s = events[at].data.ptr;
      if (events[at].events & (EPOLLHUP | EPOLLERR)) s->dead = 1;
      if (events[at].events & (EPOLLIN | EPOLLRDHUP)) read_in(s);
      if (!s->dead && events[at].events & EPOLLOUT) flush_out(s);
      if (!s->dead) step(s, now_ns());
    }
    uint64_t now = now_ns();
    for (int at = open_count - 1; at >= 0; at--) {
      if (!open_streams[at]->dead) step(open_streams[at], now);
      if (open_streams[at]->dead) leave(open_streams[at]);
    }
  }
}

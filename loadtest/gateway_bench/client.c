/* The load client: streams of chat completions, in a closed loop or as they come, and what was added on their way.

     client --ports 8080[,8081] --header 'authorization: Bearer …' --models FILE --rate 40 | --streams 32
            --tokens 250 --pace-us 25000 --prompt-bytes 1024 --warm-up-s 5 --for-s 10 --seed 1

   FILE has a name a line; the first is asked for most (Zipf, exponent 1). Says `begin` when the warm-up is over, `end`
   when the time is, and then one line of JSON about what came between them. What is under way then is given up. */
#include "wire.h"
#include <getopt.h>
#include <math.h>

enum { READ_BYTES = 65536, MOST_PORTS = 16, MOST_MODELS = 16384, RELAY_CLASSES = 2048, HEAD_BYTES = 12 };
static const double RELAY_PER_E = 50, RELAY_LEAST_MS = 0.001;
static const char DONE[] = "[DONE]", END[] = "0\r\n\r\n";

typedef struct Stream {
  int fd, port, dead;
  struct Stream *next_idle;
  struct Answer {
    int under_way, counts, tokens, in_stamp, in_second, head_bytes, done, end;
    char head[HEAD_BYTES + 1];
    uint64_t sent_ns, number, stamp_ns;
  } answer;
} Stream;

typedef struct { float *at; size_t count, room; } Times;

static int ports[MOST_PORTS], port_count, tokens = 250, prompt_bytes = 64, wanted_streams, model_count, epoll, measuring;
static double rate, warm_up_s = 1, for_s = 5, popularity[MOST_MODELS];
static char *models[MOST_MODELS];
static const char *header = "x-none: 0";
static long pace_us;
static uint64_t draws = 1, asked;
static Stream *idle;
static struct { uint64_t completed, failed, tokens, unconnected; int under_way, most, opened, first_status; } seen;
static Times added, ttft;
static uint64_t relay[RELAY_CLASSES], relayed;

static double draw(void) { /* xorshift64*, from 0 to below 1 */
  draws ^= draws >> 12, draws ^= draws << 25, draws ^= draws >> 27;
  return (double)((draws * 2685821657736338717ull) >> 11) / 9007199254740992.0;
}

static void keep(Times *times, double value) {
  if (times->count == times->room) {
    times->room = times->room * 2 + 4096;
    times->at = owned(realloc(times->at, times->room * sizeof *times->at));
  }
  times->at[times->count++] = (float)value;
}

static int ascending(const void *one, const void *other) {
  float a = *(const float *)one, b = *(const float *)other;
  return (a > b) - (a < b);
}

static void tell_times(const char *name, Times *times) {
  const struct { const char *name; double share; } asked_for[] = {{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}};
  qsort(times->at, times->count, sizeof *times->at, ascending);
  printf("\"%s\":{", name);
  for (int at = 0; at < 3 && times->count; at++) {
    size_t rank = (size_t)ceil(asked_for[at].share * (double)times->count);
    printf("%s\"%s\":%.4f", at ? "," : "", asked_for[at].name, times->at[rank ? rank - 1 : 0]);
  }
  printf("},");
}

static void keep_relay(double ms) {
  int class = ms > RELAY_LEAST_MS ? (int)(log(ms / RELAY_LEAST_MS) * RELAY_PER_E) : 0;
  relay[class < RELAY_CLASSES ? class : RELAY_CLASSES - 1]++;
  relayed++;
}

static double relay_ms(double share) {
  double count = 0;
  for (int class = 0; class < RELAY_CLASSES; class++)
    if ((count += (double)relay[class]) >= share * (double)relayed && relayed) return RELAY_LEAST_MS * exp((class + 0.5) / RELAY_PER_E);
  return 0;
}

static const char *drawn_model(void) {
  double wanted = draw() * popularity[model_count - 1];
  int low = 0, high = model_count - 1;
  while (low < high) {
    int middle = (low + high) / 2;
    if (popularity[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return models[low];
}

static void ask(Stream *s) {
  static char *request, *body;
  size_t room = (size_t)prompt_bytes + 2048;
  if (!request) request = owned(malloc(2 * room)), body = owned(malloc(room));
  int length = snprintf(body, room,
      "{\"model\":\"%s\",\"temperature\":0,\"max_tokens\":%d,\"stream\":true,\"stream_options\":{\"include_usage\":true},"
      "\"messages\":[{\"role\":\"user\",\"content\":\"%016llx @mock itl_us=%ld ", drawn_model(), tokens,
      (unsigned long long)(++asked * 0x9e3779b97f4a7c15ull), pace_us);
  for (int at = 40; at < prompt_bytes; at++) body[length++] = at % 8 ? (char)('a' + (at * 7 + (int)asked) % 26) : ' ';
  length += snprintf(body + length, 8, "\"}]}");
  int whole = snprintf(request, 2 * room,
      "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n%s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%.*s",
      ports[s->port], header, length, length, body);
  s->answer = (struct Answer){.under_way = 1, .counts = measuring, .sent_ns = now_ns()};
  if (++seen.under_way > seen.most) seen.most = seen.under_way;
  if (send(s->fd, request, (size_t)whole, MSG_NOSIGNAL) != whole) s->dead = 1;
}

static Stream *connected(void) {
  int port = seen.opened++ % port_count, on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in where = loopback(ports[port]);
  if (fd < 0 || connect(fd, (struct sockaddr *)&where, sizeof where)) {
    if (fd >= 0) close(fd);
    seen.unconnected++;
    return NULL;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  Stream *s = owned(calloc(1, sizeof *s));
  s->fd = fd, s->port = port;
  struct epoll_event wanted = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = s};
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wanted);
  return s;
}

static void one_more(void) {
  Stream *s = idle;
  if (s) idle = s->next_idle;
  else if (!(s = connected())) return;
  ask(s);
}

static void judge(Stream *s) {
  struct Answer *a = &s->answer;
  int status = a->head_bytes == HEAD_BYTES ? atoi(a->head + 9) : 1;
  a->under_way = 0;
  seen.under_way--;
  if (!measuring) return;
  if (status != 200 || a->tokens != tokens || a->end != (int)sizeof END - 1) {
    seen.failed++;
    if (!seen.first_status) seen.first_status = status;
    return;
  }
  seen.completed++;
}

/* The stamp says when it was sent and when its request came: what is left of the wait was added on the way. */
static void first_came(struct Answer *a, uint64_t stamp_ns, uint64_t request_came_ns, uint64_t now) {
  if (!a->counts) return;
  double took_ns = (double)(now - a->sent_ns), backend_ns = (double)(stamp_ns - request_came_ns);
  keep(&ttft, took_ns / 1e6);
  keep(&added, (took_ns - backend_ns) / 1e6);
}

static void token_came(struct Answer *a, uint64_t now) {
  uint64_t stamp_ns = a->in_second ? a->stamp_ns : a->number;
  if (!a->tokens++) first_came(a, stamp_ns, a->in_second ? a->number : stamp_ns, now);
  a->in_stamp = a->in_second = 0;
  if (!measuring) return;
  seen.tokens++;
  keep_relay((double)(now - stamp_ns) / 1e6);
}

/* Whether this byte is the answer's last. */
static int hear(struct Answer *a, char byte, uint64_t now) {
  if (a->head_bytes < HEAD_BYTES) a->head[a->head_bytes++] = byte;
  if (a->in_stamp) {
    if (byte >= '0' && byte <= '9') a->number = a->number * 10 + (uint64_t)(byte - '0');
    else if (byte == '/') a->stamp_ns = a->number, a->number = 0, a->in_second = 1;
    else token_came(a, now);
  } else if (byte == '@') a->in_stamp = 1, a->number = 0;
  if (a->done < (int)sizeof DONE - 1) a->done = byte == DONE[a->done] ? a->done + 1 : byte == DONE[0];
  else a->end = byte == END[a->end] ? a->end + 1 : byte == END[0];
  return a->end == (int)sizeof END - 1;
}

static void read_in(Stream *s) {
  static char bytes[READ_BYTES];
  ssize_t count = recv(s->fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (count < 0 && errno == EAGAIN) return;
  if (count <= 0) { s->dead = 1; return; }
  uint64_t now = now_ns();
  for (ssize_t at = 0; at < count && s->answer.under_way; at++) {
    if (!hear(&s->answer, bytes[at], now)) continue;
    judge(s);
    if (wanted_streams) ask(s);
    else s->next_idle = idle, idle = s;
    return;
  }
  /* A refusal has another end, and says so at once. */
  if (s->answer.head_bytes == HEAD_BYTES && atoi(s->answer.head + 9) != 200) s->dead = 1;
}

static void leave(Stream *s) {
  int asked_for = s->answer.under_way;
  if (asked_for) judge(s);
  for (Stream **at = &idle; *at; at = &(*at)->next_idle)
    if (*at == s) { *at = s->next_idle; break; }
  close(s->fd);
  free(s);
  if (asked_for && wanted_streams) one_more();
}

static void read_words(int count, char **words) {
  static const struct option KNOWN[] = {
      {"ports", 1, 0, 'p'}, {"header", 1, 0, 'H'}, {"models", 1, 0, 'm'}, {"rate", 1, 0, 'r'}, {"streams", 1, 0, 's'},
      {"tokens", 1, 0, 'n'}, {"pace-us", 1, 0, 'i'}, {"prompt-bytes", 1, 0, 'b'}, {"warm-up-s", 1, 0, 'w'},
      {"for-s", 1, 0, 'd'}, {"seed", 1, 0, 'x'}, {0, 0, 0, 0}};
  for (int word; (word = getopt_long(count, words, "", KNOWN, NULL)) >= 0;) switch (word) {
    case 'p': for (char *at = strtok(optarg, ","); at && port_count < MOST_PORTS; at = strtok(NULL, ",")) ports[port_count++] = atoi(at); break;
    case 'H': header = optarg; break;
    case 'm': {
      FILE *file = fopen(optarg, "r");
      char line[256];
      while (file && fgets(line, sizeof line, file) && model_count < MOST_MODELS) {
        line[strcspn(line, "\n")] = 0;
        models[model_count] = owned(strdup(line));
        popularity[model_count] = (model_count ? popularity[model_count - 1] : 0) + 1.0 / (model_count + 1);
        model_count++;
      }
      if (file) fclose(file);
      break;
    }
    case 'r': rate = atof(optarg); break;
    case 's': wanted_streams = atoi(optarg); break;
    case 'n': tokens = atoi(optarg); break;
    case 'i': pace_us = atol(optarg); break;
    case 'b': prompt_bytes = atoi(optarg); break;
    case 'w': warm_up_s = atof(optarg); break;
    case 'd': for_s = atof(optarg); break;
    case 'x': draws = strtoull(optarg, NULL, 10) | 1; break;
    default: exit(2);
  }
  if (!port_count || !model_count || (rate > 0) == (wanted_streams > 0)) { fputs("client: ports, models, and a rate or streams\n", stderr); exit(2); }
}

static void say_figures(double took_s) {
  tell_times("added_ttft_ms", (printf("{"), &added));
  tell_times("ttft_ms", &ttft);
  printf("\"relay_ms\":{\"p50\":%.4f,\"p95\":%.4f,\"p99\":%.4f},", relay_ms(0.5), relay_ms(0.95), relay_ms(0.99));
  printf("\"took_s\":%.4f,\"completed\":%llu,\"failed\":%llu,\"first_failed_status\":%d,\"tokens\":%llu,\"unconnected\":%llu,"
         "\"most_streams\":%d,\"under_way\":%d}\n", took_s, (unsigned long long)seen.completed, (unsigned long long)seen.failed,
         seen.first_status, (unsigned long long)seen.tokens, (unsigned long long)seen.unconnected, seen.most, seen.under_way);
}

int main(int count, char **words) {
  read_words(count, words);
  prctl(PR_SET_TIMERSLACK, 1);
  epoll = epoll_create1(0);
  uint64_t began = now_ns(), measured = began + (uint64_t)(warm_up_s * 1e9), over = measured + (uint64_t)(for_s * 1e9), due = began;
  int begun = 0;
  for (struct epoll_event events[256];;) {
    uint64_t now = now_ns();
    for (; begun < wanted_streams && now >= began + (uint64_t)(begun * (warm_up_s / 2) * 1e9 / wanted_streams); begun++) one_more();
    if (!measuring && now >= measured) measuring = 1, puts("begin"), fflush(stdout);
    if (now >= over) break;
    for (; rate > 0 && due <= now; due += (uint64_t)(-log(1 - draw()) / rate * 1e9)) one_more();
    uint64_t next = measuring ? over : measured, soon = now + 1000000;
    if (rate > 0 && due < next) next = due;
    if (begun < wanted_streams && soon < next) next = soon;
    int happened = wait_until(epoll, events, 256, next);
    for (int at = 0; at < happened; at++) {
      Stream *s = events[at].data.ptr;
      if (events[at].events & EPOLLIN) read_in(s);
      else if (events[at].events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) s->dead = 1;
      if (s->dead) leave(s);
    }
  }
  puts("end"), fflush(stdout);
  say_figures((double)(now_ns() - measured) / 1e9);
  fflush(stdout);
  getchar(); /* whoever reads what this process took does so while there is one */
}

/* What the mock backend and the load client have in common.

   Every token that a backend says is the moment at which it says it, ` @<ns>`, by CLOCK_MONOTONIC; a first token says
   when its request came as well, ` @<ns>/<ns>`. Both ends are on one machine: so the client knows of every token how
   long it was on its way, and of every answer how much later its first token came than from the backend itself. */
#ifndef WIRE_H
#define WIRE_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static inline uint64_t now_ns(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * 1000000000ull + (uint64_t)at.tv_nsec;
}

static inline void *owned(void *memory) {
  if (!memory) { fputs("out of memory\n", stderr); exit(1); }
  return memory;
}

static inline int wait_until(int epoll, struct epoll_event *events, int most, uint64_t due_ns) {
  uint64_t now = now_ns(), left = due_ns > now ? due_ns - now : 0;
  struct timespec wait = {.tv_sec = (time_t)(left / 1000000000ull), .tv_nsec = (long)(left % 1000000000ull)};
  return epoll_pwait2(epoll, events, most, &wait, NULL);
}

static inline struct sockaddr_in loopback(int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return at;
}
#endif

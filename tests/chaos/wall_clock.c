// For the scenario the_wall_clock_jumps_all_the_time: the wall clock is some hours off, and off by
// something else a tenth of a second later; the clocks that only go forward are left alone.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/time.h>
#include <time.h>

static int real_clock(clockid_t clock, struct timespec* now) {
  static int (*next)(clockid_t, struct timespec*);
  if (next == NULL) next = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  return next(clock, now);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = real_clock(clock, now);
  if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return result;
  struct timespec steady;
  real_clock(CLOCK_MONOTONIC, &steady);
  const long tenths = steady.tv_sec * 10 + steady.tv_nsec / 100000000;
  now->tv_sec += (tenths * 7919 % 13 - 6) * 3600;
  return result;
}

int gettimeofday(struct timeval* now, void* zone) {
  (void)zone;
  struct timespec wall;
  const int result = clock_gettime(CLOCK_REALTIME, &wall);
  now->tv_sec = wall.tv_sec;
  now->tv_usec = wall.tv_nsec / 1000;
  return result;
}

time_t time(time_t* out) {
  struct timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  if (out != NULL) *out = wall.tv_sec;
  return wall.tv_sec;
}

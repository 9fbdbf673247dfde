/* Progress (docs/protocol.md, rule 1), under weak fairness: every process that can go on does so in the end.
 *
 * Processes     Request[i]: one request after another at one P. D[i]: D as that connection sees it. Decode: D decodes and frees. Pages: D_PAGES at D, one at P, so that two
 *               requests want the same one.
 * Messages      RESERVE -> GRANT or FULL; COMMIT; a request that got FULL asks again and keeps its place in D's queue.
 * Order         D's page first, then P's, and P's only with the grant in hand.
 *
 * Checked       a request that reserves is granted in the end (granted_0, granted_1); a page that is taken comes home
 *               (d_page_home, p_page_home); no deadlock (invalid end states).
 */
#define REQUESTS 2
#define D_PAGES 1

mtype = { RESERVE, GRANT, FULL, COMMIT };
chan to_d[REQUESTS] = [1] of { mtype };
chan to_request[REQUESTS] = [1] of { mtype };

byte d_free = D_PAGES, p_free = 1;
bool reserving[REQUESTS], has_grant[REQUESTS], decoding[REQUESTS];
/* D's queue: who got FULL and still waits, and who of them came first. */
bool queued[REQUESTS];
byte oldest = REQUESTS;

active [REQUESTS] proctype Request() {
  byte i = _pid;
  do
  :: reserving[i] = true;
#ifdef BUG_P_PAGE_FIRST
     atomic { p_free > 0 -> p_free-- };
#endif
     do
     :: to_d[i]!RESERVE;
        if
        :: to_request[i]?GRANT -> break
        :: to_request[i]?FULL
        fi
     od;
#ifndef BUG_P_PAGE_FIRST
     atomic { p_free > 0 -> p_free-- };
#endif
     /* P computes and pushes. */
#ifdef BUG_P_KEEPS_PAGE
     to_d[i]!COMMIT;
     d_free > D_PAGES;
     p_free++
#else
     p_free++;
     to_d[i]!COMMIT
#endif
  od
}

inline answer(i) {
  if
#ifdef BUG_NO_QUEUE
  :: d_free > 0 ->
#else
  :: d_free > 0 && (oldest == i || oldest == REQUESTS) ->
     queued[i] = false;
#ifdef BUG_ONE_PLACE
     oldest = REQUESTS; /* the next in the queue has lost its place */
#else
     oldest = (queued[1 - i] -> 1 - i : REQUESTS);
#endif
#endif
     d_free--;
     has_grant[i] = true; reserving[i] = false;
     to_request[i]!GRANT
  :: else ->
     queued[i] = true;
     if
     :: oldest == REQUESTS -> oldest = i
     :: else
     fi;
     to_request[i]!FULL
  fi
}

/* D's loop serves every connection: one process each, so that fairness speaks of connections. */
active [REQUESTS] proctype D() {
  byte i = _pid - REQUESTS;
  do
  :: atomic { to_d[i]?RESERVE -> answer(i) }
  :: atomic { to_d[i]?COMMIT -> has_grant[i] = false; decoding[i] = true }
  od
}

/* D decodes to the end and frees. */
active proctype Decode() {
  do
  :: atomic { decoding[0] -> decoding[0] = false; d_free++ }
  :: atomic { decoding[1] -> decoding[1] = false; d_free++ }
  od
}

ltl granted_0 { [] (reserving[0] -> <> has_grant[0]) }
ltl granted_1 { [] (reserving[1] -> <> has_grant[1]) }
ltl d_page_home { [] (d_free == 0 -> <> (d_free > 0)) }
ltl p_page_home { [] (p_free == 0 -> <> (p_free > 0)) }

/* Pages and grants under loss (docs/protocol.md, rules 3, 4 and 5).
 *
 * Processes     D[i]: the decode worker as the connection of P[i] sees it (its steps are atomic: one loop). Pool: what D does of its
 *               own, timers and ends of sequences. P[i]: a prefill worker's control side. Copy[i]: its copies (a copy engine goes on
 *               while the process is stopped). Faults[i]: connections lost, workers killed.
 * Page states   free, granted, verifying (COMMIT has come, D compares the digest), quarantined, used; "cached" is left out: it is free here,
 *               nobody writes to it.
 * Messages      RESERVE GRANT FULL COMMIT ACK NAK RELEASE DRAINED DRAINED_ALL, each with the slot_gen where it has one.
 * P's stages    idle, reserving (RESERVE sent), holding (GRANT in hand, nothing begun), pushing, committed (COMMIT sent).
 * Proof of death: the pidfd of one incarnation, read by D at any later time.
 *
 * Checked       no write into a page that is not under the writer's grant; D decodes only what has arrived; every page in one
 *               state and the counts sum to the pool; when all has ended, every page has come home.
 *               With DIGEST: D decodes nothing that was spoiled on the way.
 * Bounds        PREFILLS workers of REQUESTS requests, GENERATIONS grants, LOSSES connections lost, DEATHS, LOCALS prompts that D prefills
 *               itself while grants are outstanding.
 * Seeded bugs   BUG_* below: the checker must find each of them.
 */
#ifndef PREFILLS
#define PREFILLS 1
#endif
#ifndef REQUESTS
#define REQUESTS 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef LOCALS
#define LOCALS 0
#endif
#define PAGES 2
#define GENERATIONS 3
#define NOBODY 255

mtype = { RESERVE, GRANT, FULL, COMMIT, ACK, NAK, RELEASE, DRAINED, DRAINED_ALL };
mtype:page = { free, granted, verifying, quarantined, used };
mtype:stage = { idle, reserving, holding, pushing, committed };

chan to_d[PREFILLS] = [3] of { mtype, byte };       /* message, slot_gen */
chan to_p[PREFILLS] = [6] of { mtype, byte, byte }; /* message, slot_gen, page */

/* The connection of P[i] and D: up, or lost with neither, one or both sides aware. */
bool up[PREFILLS] = true;
bool d_unaware[PREFILLS], p_unaware[PREFILLS];
byte losses = LOSSES, deaths = DEATHS;

/* D's pool. */
mtype:page state[PAGES] = free;
byte slot_gen[PAGES];
byte holder[PAGES] = NOBODY;
byte incarnation_of[PAGES];
bool is_old[PAGES]; /* granted over an earlier connection */
byte next_gen = 1;
byte free_count = PAGES, granted_count, quarantined_count, used_count;

/* What really lies in a page: the slot_gen of its last writer. */
byte content[PAGES];
bool spoiled[PAGES]; /* on its way here */
byte locals = LOCALS;

/* P. */
byte incarnation[PREFILLS];
bool proof_of_death[PREFILLS]; /* incarnation - 1 is dead and D has not read its pidfd yet */
bool must_drain_all[PREFILLS];
mtype:stage stage[PREFILLS] = idle;
byte requests[PREFILLS] = REQUESTS;
byte p_gen[PREFILLS], p_page[PREFILLS];
bool released[PREFILLS]; /* RELEASE came while pushing */
bool copying[PREFILLS], written[PREFILLS];
byte copy_gen[PREFILLS], copy_page[PREFILLS];

inline count(s, change) {
  if
  :: s == free -> free_count = free_count + change
  :: s == granted || s == verifying -> granted_count = granted_count + change
  :: s == quarantined -> quarantined_count = quarantined_count + change
  :: s == used -> used_count = used_count + change
  fi
}

inline move(page, next) {
  count(state[page], -1);
  state[page] = next;
  count(next, 1);
  assert(free_count + granted_count + quarantined_count + used_count == PAGES);
  if
  :: next == free -> slot_gen[page] = 0; holder[page] = NOBODY; is_old[page] = false; incarnation_of[page] = 0; content[page] = 0; spoiled[page] = false
  :: else
  fi
}

inline send_p(i, message, gen, page) {
  if
  :: up[i] -> to_p[i]!message(gen, page)
  :: else /* lost with the connection */
  fi
}

inline send_d(i, message, gen) {
  if
  :: up[i] -> to_d[i]!message(gen)
  :: else
  fi
}

/* The page under grant `gen`, PAGES if it has ended. */
inline find(gen, page) {
  page = 0;
  do
  :: page < PAGES && !((state[page] == granted || state[page] == quarantined) && slot_gen[page] == gen) -> page++
  :: else -> break
  od
}

inline find_free(page) {
  page = 0;
  do
  :: page < PAGES && state[page] != free -> page++
  :: else -> break
  od
}

/* Ends or quarantines what matches, page by page. */
inline end_grants(i, condition, next) {
  page = 0;
  do
  :: page < PAGES ->
     if
     :: (state[page] == granted || state[page] == quarantined) && condition -> move(page, next)
     :: else
     fi;
     page++
  :: else -> break
  od;
  page = 0
}

active [PREFILLS] proctype D() {
  byte gen, page;
  byte i = _pid;
end:
  do
  :: atomic { nfull(to_p[i]) && to_d[i]?[RESERVE(_)] ->
       to_d[i]?RESERVE(gen);
       find_free(page);
       if
       :: page < PAGES && next_gen <= GENERATIONS ->
          move(page, granted);
          slot_gen[page] = next_gen; holder[page] = i; incarnation_of[page] = incarnation[i];
          send_p(i, GRANT, next_gen, page);
          next_gen++
       :: else -> send_p(i, FULL, 0, 0)
       fi;
       gen = 0; page = 0
     }
  :: atomic { nfull(to_p[i]) && to_d[i]?[COMMIT(_)] ->
       to_d[i]?COMMIT(gen);
       find(gen, page);
#ifdef BUG_NO_GENERATION_CHECK
       if
       :: page == PAGES -> page = p_page[i]
       :: else
       fi;
#endif
       if
       :: page < PAGES && state[page] == granted ->
          assert(content[page] == gen && !(copying[i] && copy_gen[i] == gen));
#ifdef DIGEST
          move(page, verifying)
#else
          move(page, used);
          send_p(i, ACK, gen, page)
#endif
       :: page < PAGES && state[page] == quarantined -> move(page, free); send_p(i, NAK, gen, page)
       :: else -> send_p(i, NAK, gen, 0)
       fi;
       gen = 0; page = 0
     }
#ifdef DIGEST
  /* The handoff thread has compared. */
  :: atomic { nfull(to_p[i]) && ((state[0] == verifying && holder[0] == i) || (state[1] == verifying && holder[1] == i)) ->
       if
       :: state[0] == verifying && holder[0] == i -> page = 0
       :: state[1] == verifying && holder[1] == i -> page = 1
       fi;
       gen = slot_gen[page];
       if
#ifndef BUG_DIGEST_NOT_CHECKED
       :: spoiled[page] -> move(page, free); send_p(i, NAK, gen, page)
#endif
       :: else -> assert(!spoiled[page]); move(page, used); send_p(i, ACK, gen, page)
       fi;
       gen = 0; page = 0
     }
#endif
  :: atomic { to_d[i]?[DRAINED(_)] ->
       to_d[i]?DRAINED(gen);
       find(gen, page);
#ifdef BUG_NO_GENERATION_CHECK
       if
       :: page == PAGES -> page = p_page[i]
       :: else
       fi;
       if
       :: state[page] == granted || state[page] == quarantined -> move(page, free)
       :: else
       fi;
#else
       if
       :: page < PAGES -> move(page, free)
       :: else
       fi;
#endif
       gen = 0; page = 0
     }
  :: atomic { to_d[i]?[DRAINED_ALL(_)] ->
       to_d[i]?DRAINED_ALL(gen);
#ifdef BUG_DRAINED_ALL_OF_ANOTHER
       end_grants(i, is_old[page], free);
#else
       end_grants(i, holder[page] == i && incarnation_of[page] == incarnation[i] && is_old[page], free);
#endif
       gen = 0
     }

  /* D sees that the connection is gone. */
  :: atomic { d_unaware[i] ->
#ifdef BUG_LOSS_FREES
       end_grants(i, holder[page] == i, free);
#else
       page = 0;
       do
       :: page < PAGES ->
          if
          :: holder[page] == i && (state[page] == granted || state[page] == quarantined) ->
             is_old[page] = true;
             if
             :: state[page] == granted -> move(page, quarantined)
             :: else
             fi
          :: else
          fi;
          page++
       :: else -> break
       od;
       page = 0;
#endif
       d_unaware[i] = false
     }
  :: atomic { proof_of_death[i] ->
       end_grants(i, holder[page] == i && incarnation_of[page] < incarnation[i], free);
       proof_of_death[i] = false
     }
  od
}

/* A timer of D's own, or a cancel, quarantines and asks P to stop; a sequence that D decodes ends. */
active proctype Pool() {
end:
  do
  :: atomic { state[0] == granted && !is_old[0] && nfull(to_p[holder[0]]) ->
       send_p(holder[0], RELEASE, slot_gen[0], 0);
#ifdef BUG_TIMER_FREES
       move(0, free)
#else
       move(0, quarantined)
#endif
     }
  :: atomic { state[0] == used -> move(0, free) }
  :: atomic { state[1] == used -> move(1, free) }
  :: atomic { locals > 0 && state[0] == free -> locals--; move(0, used) }
  :: atomic { locals > 0 && state[1] == free -> locals--; move(1, used) }
  od
}

active [PREFILLS] proctype P() {
  byte gen, page;
  byte i = _pid - PREFILLS - 1;
end:
  do
  :: atomic { stage[i] == idle && requests[i] > 0 && up[i] && nfull(to_d[i]) ->
       requests[i]--; send_d(i, RESERVE, 0); stage[i] = reserving
     }
  :: atomic { nfull(to_d[i]) && to_p[i]?[GRANT(_, _)] ->
       to_p[i]?GRANT(gen, page);
       if
       :: stage[i] == reserving -> p_gen[i] = gen; p_page[i] = page; stage[i] = holding
       :: else -> send_d(i, DRAINED, gen) /* the request is gone */
       fi;
       gen = 0; page = 0
     }
  :: atomic { to_p[i]?[FULL(_, _)] ->
       to_p[i]?FULL(gen, page);
       if
       :: stage[i] == reserving -> stage[i] = idle
       :: else
       fi;
       gen = 0; page = 0
     }
  /* R cancels while the GRANT is under way. */
  :: atomic { stage[i] == reserving -> stage[i] = idle }
  :: atomic { stage[i] == holding && !copying[i] ->
       stage[i] = pushing; released[i] = false;
       copying[i] = true; written[i] = false; copy_gen[i] = p_gen[i]; copy_page[i] = p_page[i]
     }
  /* Not begun within reserve_ttl, or cancelled. */
  :: atomic { stage[i] == holding && nfull(to_d[i]) -> send_d(i, DRAINED, p_gen[i]); stage[i] = idle }
#ifdef BUG_COMMIT_BEFORE_ARRIVAL
  :: atomic { stage[i] == pushing && nfull(to_d[i]) ->
#else
  :: atomic { stage[i] == pushing && !copying[i] && nfull(to_d[i]) ->
#endif
       if
       :: released[i] -> send_d(i, DRAINED, p_gen[i]); stage[i] = idle
       :: !released[i] -> send_d(i, COMMIT, p_gen[i]); stage[i] = committed
       :: !released[i] -> send_d(i, DRAINED, p_gen[i]); stage[i] = idle /* cancelled, or all choices have ended */
       fi
     }
  :: atomic { nfull(to_d[i]) && to_p[i]?[RELEASE(_, _)] ->
       to_p[i]?RELEASE(gen, page);
       if
#ifndef BUG_DRAINED_DURING_COPY
       :: copying[i] && copy_gen[i] == gen -> released[i] = true
#endif
       :: stage[i] == holding && p_gen[i] == gen -> send_d(i, DRAINED, gen); stage[i] = idle
       :: else -> send_d(i, DRAINED, gen) /* ended, or never seen */
       fi;
       gen = 0; page = 0
     }
  :: atomic { to_p[i]?[ACK(_, _)] -> to_p[i]?ACK(gen, page);
       if
       :: stage[i] == committed && p_gen[i] == gen -> stage[i] = idle
       :: else
       fi;
       gen = 0; page = 0
     }
  :: atomic { to_p[i]?[NAK(_, _)] -> to_p[i]?NAK(gen, page);
       if
       :: stage[i] == committed && p_gen[i] == gen -> stage[i] = idle
       :: else
       fi;
       gen = 0; page = 0
     }
  /* P sees that the connection is gone: nothing more is started on its grants. Copies under way go on. */
  :: atomic { p_unaware[i] ->
       p_unaware[i] = false; must_drain_all[i] = true;
#ifndef BUG_STARTS_ON_OLD_GRANT
       stage[i] = idle
#else
       if
       :: stage[i] != holding -> stage[i] = idle
       :: else
       fi
#endif
     }
#ifdef BUG_DRAINED_ALL_DURING_COPY
  :: atomic { up[i] && must_drain_all[i] && nfull(to_d[i]) ->
#else
  :: atomic { up[i] && must_drain_all[i] && !copying[i] && nfull(to_d[i]) ->
#endif
       must_drain_all[i] = false;
#ifndef BUG_NO_DRAINED_ALL
       send_d(i, DRAINED_ALL, 0)
#endif
     }
  od
}

active [PREFILLS] proctype Copy() {
  byte i = _pid - 2 * PREFILLS - 1;
end:
  do
  :: atomic { copying[i] && !written[i] ->
       assert(state[copy_page[i]] == granted || state[copy_page[i]] == quarantined);
       assert(slot_gen[copy_page[i]] == copy_gen[i]);
       content[copy_page[i]] = copy_gen[i];
#ifdef DIGEST
       if
       :: spoiled[copy_page[i]] = true
       :: skip
       fi;
#endif
       written[i] = true
     }
  :: atomic { copying[i] && written[i] -> copying[i] = false; copy_gen[i] = 0; copy_page[i] = 0; written[i] = false }
  od
}

inline cut(i) {
  up[i] = false; d_unaware[i] = true;
  do
  :: nempty(to_d[i]) -> to_d[i]?_(_)
  :: nempty(to_p[i]) -> to_p[i]?_(_, _)
  :: empty(to_d[i]) && empty(to_p[i]) -> break
  od
}

active [PREFILLS] proctype Faults() {
  byte i = _pid - 3 * PREFILLS - 1;
end:
  do
  :: atomic { losses > 0 && up[i] -> losses--; cut(i); p_unaware[i] = true }
  :: atomic { !up[i] && !d_unaware[i] && !p_unaware[i] -> up[i] = true }
  /* Killed: its copies end with it (that is what the pidfd proves), its successor knows nothing. */
  :: atomic { deaths > 0 && !proof_of_death[i] ->
       deaths--; cut(i);
       p_unaware[i] = false; must_drain_all[i] = false; stage[i] = idle; released[i] = false;
       copying[i] = false; written[i] = false; copy_gen[i] = 0; copy_page[i] = 0;
       incarnation[i]++; proof_of_death[i] = true
     }
  /* All has ended: no grant is left behind. */
  :: timeout -> assert(free_count == PAGES); break
  od
}

/* Tokens and their order (docs/protocol.md, rules 7 and 10).
 *
 * Processes     R[a]: the router at the connections of attempt a (one loop: its steps are atomic), one request of CHOICES choices. Attempt[a]: what P and D do for attempt a: P samples the first token
 *               of each choice, sends it to R and puts it into COMMIT; D repeats it in its first event and goes on.
 * Messages      EVENTS(attempt, choice, position) from P and from D, each on its own connection; COMMIT is the step from p to d.
 * Loss          P's connection to R is lost (R goes on: D repeats); P dies before COMMIT or D dies after it: R replays as a new
 *               attempt from the accepted tokens of each choice and never waits for the old one, which may go on sending.
 *
 * Checked       each choice is released strictly in order, without a hole or a repeat; every token follows tokens that its own
 *               attempt was given or made; when all has ended, the request is complete.
 * Bounds        ATTEMPTS attempts, TOKENS tokens a choice.
 */
#define CHOICES 2
#ifndef TOKENS
#define TOKENS 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#define QUEUE 1

mtype = { EVENTS };
chan from_p[ATTEMPTS] = [QUEUE] of { mtype, byte, byte }; /* choice, position */
chan from_d[ATTEMPTS] = [QUEUE] of { mtype, byte, byte };

byte attempt;             /* R's current one */
byte accepted[CHOICES];   /* tokens released to the client */
byte maker[CHOICES * TOKENS]; /* ghost: the attempt whose token was released, plus 1 */
byte start[ATTEMPTS * CHOICES]; /* accepted tokens that an attempt was opened with */
bool opened[ATTEMPTS], p_gone[ATTEMPTS], lost[ATTEMPTS]; /* lost: R has seen the death of the worker it waited for */
bool p_cut[ATTEMPTS];

inline release(a, choice, position) {
#ifndef BUG_ANY_ATTEMPT
  if
  :: a != attempt -> goto next
  :: else
  fi;
#endif
#ifdef BUG_NO_REPEAT_CHECK
  if
  :: position > accepted[choice] -> goto next
  :: else
  fi;
#else
#ifdef BUG_HOLES
  if
  :: position < accepted[choice] -> goto next
  :: else
  fi;
#else
  if
  :: position != accepted[choice] -> goto next
  :: else
  fi;
#endif
#endif
  assert(position == accepted[choice]);
  assert(position == start[a * CHOICES + choice] || maker[choice * TOKENS + position - 1] == a + 1);
  maker[choice * TOKENS + position] = a + 1;
  accepted[choice]++
}

inline open(a) {
  start[a * CHOICES] = accepted[0];
  start[a * CHOICES + 1] = accepted[1];
  opened[a] = true
}

active [ATTEMPTS] proctype R() {
  byte choice, position;
  byte a = _pid;
next:
end:
  do
  :: atomic { a == 0 && !opened[0] -> open(0) }
  :: atomic { from_p[a]?EVENTS(choice, position) -> release(a, choice, position); choice = 0; position = 0 }
  :: atomic { from_d[a]?EVENTS(choice, position) -> release(a, choice, position); choice = 0; position = 0 }
  /* Replay from the accepted tokens; the old attempt may still be sending. */
  :: atomic { a == attempt && lost[a] && a < ATTEMPTS - 1 -> attempt++; open(attempt) }
  :: timeout -> assert(accepted[0] == TOKENS && accepted[1] == TOKENS); break
  od
}

inline worker_lost(a) {
  lost[a] = true
}

active [ATTEMPTS] proctype Attempt() {
  byte a = _pid - ATTEMPTS;
  byte position[CHOICES];
  byte choice;
end_closed:
  opened[a];
  position[0] = start[a * CHOICES];
  position[1] = start[a * CHOICES + 1];
  /* P: the first token of each choice, over a connection that may go. */
  do
  :: choice < CHOICES && position[choice] < TOKENS && !p_cut[a] -> from_p[a]!EVENTS(choice, position[choice]); choice++
  :: choice < CHOICES && (position[choice] == TOKENS || p_cut[a]) -> choice++
  :: choice == CHOICES -> break
  :: !p_cut[a] -> p_cut[a] = true
  :: a < ATTEMPTS - 1 -> worker_lost(a); goto ended /* P dies before COMMIT */
  od;
  choice = 0;
#ifdef BUG_D_DOES_NOT_REPEAT
  position[0] = (position[0] < TOKENS -> position[0] + 1 : TOKENS);
  position[1] = (position[1] < TOKENS -> position[1] + 1 : TOKENS);
#endif
  /* D: from the first token on, the choices in any order. */
  do
  :: position[0] < TOKENS -> from_d[a]!EVENTS(0, position[0]); position[0]++
  :: position[1] < TOKENS -> from_d[a]!EVENTS(1, position[1]); position[1]++
  :: position[0] == TOKENS && position[1] == TOKENS -> break
  /* D dies, or R only thinks so and D goes on. */
  :: a < ATTEMPTS - 1 && !lost[a] -> worker_lost(a); goto ended
  :: a < ATTEMPTS - 1 && !lost[a] -> worker_lost(a)
  od;
ended:
  skip
}

// Redlatch runs commands under a lock in Redis. It also shows who holds locks, and releases them.
//
//	redlatch run [flags] KEY -- COMMAND [ARG...]
//	redlatch list [flags]
//	redlatch watch [flags]
//	redlatch status [flags] KEY...
//	redlatch unlock [flags] KEY
//	redlatch version
//
// For example, several hosts have this crontab, and one of them makes the report:
//
//	REDIS_URL=redis://redis.internal:6379
//	0 3 * * * /usr/local/bin/redlatch run -try -q -min-hold 1m nightly-report -- /usr/local/bin/make-report
//
// The PATH of cron has no ~/go/bin. With -q, cron sends no mail from the other hosts. To make the
// report even if Redis is down for a while, use "-timeout 5m -q -min-hold 10m" instead. The min
// hold is longer than the timeout, so that no other host makes it again.
//
// A release will have binaries, and an image that contains only /redlatch. Copy the command from it,
// or look at locks:
//
//	docker run --rm -e REDIS_URL ghcr.io/redlatch/redlatch list
//
// The locks exclude the locks of programs that use the package github.com/redlatch/redlatch:
// [redlatch.NewSetNXPX] with one Redis server, [redlatch.NewRedlock] with several,
// [redlatch.NewSemaphore] with -limit, and [redlatch.NewReadWrite] with -read or -write.
//
// # Redis
//
// Each command has these flags:
//
//	-redis URL      a Redis server. Repeat it for each server of a quorum of independent servers (Redlock)
//	-prefix TEXT    put TEXT before KEY in Redis. The default is none
//	-cert FILE      a certificate, in PEM, for TLS servers that ask for one
//	-cert-key FILE  its private key. The default is the same file
//
// Without -redis, the environment variable REDIS_URL names the server, or several separated by
// spaces. There is no default server: a lock on a server that nobody else uses excludes nobody. A
// URL has one of these forms:
//
//	redis://user:password@host:port/db
//	rediss://user:password@host:port/db
//	unix://user:password@/path/to/socket?db=0
//	redis+sentinel://user:password@host:port,host:port/NAME/db
//	redis+cluster://user:password@host:port,host:port
//
// The fourth form names Sentinels, and NAME is the primary that they watch. The user, the password
// and the database belong to the Redis servers. If the Sentinels have their own password, add
// ?sentinel_password=P, and &sentinel_username=U if they have users. Sentinels that require TLS are
// not supported. The last form names some nodes of a Redis Cluster.
//
// With rediss and rediss+cluster the connections use TLS. The certificates of the servers must be
// signed by an authority that the system knows, or one in the file that SSL_CERT_FILE names, which
// works on Linux and the BSDs. If a port has TLS and the URL does not begin with rediss, or the
// reverse, the error says EOF, or that there was no reply. Special characters in a password must be
// percent-encoded, such as %40 for @ and %2F for a slash. Redlatch never prints a URL. If a URL has
// a password, put it in REDIS_URL: other users can see the arguments of a process.
//
// # Run
//
// Run waits until KEY is free, holds the lock while COMMAND runs, and exits with the status of
// COMMAND. Its flags are:
//
//	-try            do not wait: exit with 75 if KEY is held
//	-timeout D      wait for at most D, such as 30s or 5m. The default is no limit
//	-q              print nothing if another owner holds KEY
//	-busy-status N  exit with N in place of 75 if another owner holds KEY. With 0, Kubernetes does not count the job
//	                as failed
//	-ttl D          how long the lock lasts if nothing renews it. The default is 10s
//	-grace D        the time between SIGTERM and SIGKILL when the lock is lost, at most a third of -ttl and of
//	                -max-hold. The default is that third, up to 5s. With 0, run sends SIGKILL at once
//	-min-hold D     keep others out for D after the lock was acquired, even if COMMAND ends sooner
//	-keep-after D   keep others out for D after COMMAND has ended with status 0, so that it does not run again soon
//	-max-hold D     end COMMAND, as if the lock was lost, before it has held the lock for D. The default is no limit
//	-owner NAME     the name of the holder, for status and for waiters. The default is the host and process id of run
//	-limit N        KEY is a semaphore with up to N holders, and not a lock with one. It needs one Redis server
//	-read           KEY has many readers or one writer, and run is a reader. It needs one Redis server
//	-write          the same, and run is a writer
//
// While Redis is unavailable, run says so once on stderr and retries. It exits with 69 when
// -timeout ends, with -try after one attempt, or at once after an error that retrying cannot fix.
// On one Redis server, waiters are served first come, first served.
//
// COMMAND has the stdin, stdout and stderr of redlatch, and these variables in its environment:
//
//	REDLATCH_KEY    KEY
//	REDLATCH_TOKEN  the token that proves ownership. It is a secret: anyone who knows it can release the lock
//	REDLATCH_FENCE  a number that grows with every grant of KEY. Let the resource that the lock protects refuse a
//	                number below one that it has seen. That also stops a COMMAND that was paused for longer than -ttl.
//	                With -limit and -read this does not work, because several holders are valid
//	REDLATCH_HELD   the tokens of this run, and of the runs that it is a part of. A run that would wait for one of
//	                these locks fails with 64, because it would wait for itself. Unset it for programs that COMMAND
//	                starts and does not wait for
//
// The lock is released when COMMAND exits. Background processes that COMMAND leaves behind continue
// without the lock. As PID 1 of a container, run reaps them. If Redis does not confirm the release,
// run says so on stderr and still exits with the status of COMMAND, which ran under the lock. KEY
// is free after its TTL then, or after its min hold if that is longer. If COMMAND was not started,
// -min-hold does not apply.
//
// # Loss
//
// The lock is renewed every third of its TTL. It is lost if KEY is deleted or taken, or if Redis is
// out of reach for too long. Then COMMAND must end. It runs in its own process group. Run sends
// SIGTERM to the whole group, and SIGKILL after the time of -grace if a process of the group is
// left. Run then exits with 70, whatever COMMAND returned. A zombie counts as a process that is
// left. So if nobody reaps it, run waits for the whole grace.
//
// In an outage, run sends SIGTERM before the lock ends. So SIGKILL comes before Redis can give KEY
// to another owner:
//
//	SIGTERM = end of the lease − grace − TTL/20
//	SIGKILL = end of the lease − TTL/20
//
// The lease ends -max-hold after the lock was acquired at the latest. If -max-hold is shorter than
// -ttl, it counts as the TTL here.
//
// With the defaults, COMMAND survives any outage of up to about 2.5 s. With a longer -ttl it
// survives longer ones. If the lock was deleted or taken, run notices at the next renewal, and
// another owner may hold KEY already. Processes that leave the group, as daemons do, get no signal.
//
// If redlatch itself is killed by SIGKILL, Linux kills COMMAND too, but not the children of
// COMMAND. On other systems COMMAND continues without a lock. In both cases KEY is free after its
// TTL.
//
// # Signals
//
// Run passes HUP, INT, QUIT, TERM, USR1, USR2, WINCH and TSTP on to the group of COMMAND. Signals
// that are ignored when redlatch starts, as HUP is under nohup, stay ignored. While run waits, each
// of the first six ends the wait: nothing is left in Redis, and the status is 128+n.
//
// Without a terminal, run also passes CONT on. So a supervisor that stops COMMAND with TSTP can
// continue it. In between, the lock is renewed.
//
// On a terminal, the group of COMMAND becomes the foreground group when it first reads from the
// terminal or changes its settings. Ctrl-Z stops both COMMAND and redlatch. The lock is not renewed
// while redlatch is stopped. If the lock is lost in the meantime, COMMAND does not continue and is
// killed.
//
// # List
//
// List shows all keys that are held, or kept by a min hold, with their owners and how many wait:
//
//	KEY     KIND    OWNER                SINCE  LEFT   WAITERS  LONGEST
//	import  lock    api-7:4711           3m12s  8.1s   2        1m5s
//	mail    shared  api-2:99 and 1 more  41s    6.7s   0        -
//	report  lock    (kept)               -      19m3s  0        -
//	3 locks, 2 waiters; 2,104,331 keys read in 9s
//
// SINCE is the time since the owner began to ask. The lock has been held for at most that long, if
// the clocks agree. LONGEST is the longest wait. Keys with the longest waits come first. The last
// line is on stderr. The flags of list are:
//
//	-match PATTERN  only keys that match: * stands for any text, ? for any character, [ab] for one of these
//	-waiting        only keys for which somebody waits
//	-long           also a line for each holder of a shared key and for each waiter, up to 100 a key
//	-json           print a JSON object for each key, as status does, with its kind, votes and servers
//	-watch          show it again each second. Ctrl-C ends it. On a terminal it stays in place: it shows as many rows
//	                as fit, and cuts long keys in the middle
//
// List reads every key of the server by SCAN, on a Cluster on every master, in pages of up to 1,000
// keys. Of each it reads at most 240 bytes, so it can run alongside other work. With -match or
// -prefix it still scans all keys, but reads fewer.
//
// KIND is lock, legacy, shared or writer. A shared key is a semaphore, or a read-write lock that
// readers hold, which look the same in Redis. List recognizes a lock by its form: a token of
// redlatch, with a TTL. It does not show locks of other libraries, even if they use the protocol of
// LegacySetNX. With several servers, VOTES says how many of them have the same holder. A lock of a
// quorum needs more than half.
//
// A KEY that a terminal cannot show has the form $'orders:\xff', which bash and zsh read. So it can
// be given to status and unlock. The field key_base64 of a JSON object has a KEY that is not UTF-8.
//
// If a server, or a master of a Cluster, cannot be read, list shows what the others have, names
// each that is missing on stderr, and exits with 69.
//
// # Watch
//
// Watch prints a line for each hand-over until it is interrupted, with tabs between the columns:
//
//	time	KEY	old OWNER	new OWNER	fence	how long the new owner has waited
//
// It shows hand-overs in the database of the URL. A client that wraps another one may hide its
// database, and counts as one of database 0. The flags -match and -prefix work as for list. The old
// owner is a dash unless watch has seen its hand-over. Watch reads the messages by which Redis
// tells a waiter that it has a lock or a permit. So it does not see grants of free keys, or locks
// that are passed on within a process. It does not see grants to waiters that poll either, such as
// all waiters of a quorum. If its connection breaks, it says so and continues.
//
// # Status
//
// Status prints a line for each KEY, with tabs between the columns:
//
//	KEY	state	OWNER	time left	number of waiters	time since the owner asked
//
// KEY has been held for at most the time in the last column, if the clocks agree. Lines that begin
// with a tab follow, up to 100 for holders and 100 for waiters. Only a semaphore or a read-write
// lock has lines of holders. The earliest holder and the longest wait come first:
//
//	holds	OWNER	time since the owner asked	time left
//	waits	OWNER	how long
//
// Status finds out what KEY is: a lock, a semaphore, a read-write lock, or one of [redlatch.NewLegacySetNX].
// The state is held, free, or kept: nobody holds KEY, but its min hold keeps others out for the
// time left. A dash means that there is no value or that it is unknown. The time left is "never"
// for a key without a TTL.
//
// With -json each line is a JSON object with the fields key, held, kept, owner, since, ttl_ns,
// waiters, queue and holders. If KEY is a semaphore or a read-write lock, it also has the field
// holding. If kept is true, held is false. ttl_ns is negative if the key has no TTL. since
// is missing if it is unknown. queue is a list of objects with owner and waited_ns, and holding
// one of objects with owner, since, ttl_ns, and writes if a writer holds KEY.
//
// If KEY is a semaphore or a read-write lock, the second column reads, for example, "2 holders" or
// "1 writer". The owner and the time left describe the holder whose lease ends first. A permit in
// its min hold counts, and has no owner. The readers of a process that share a permit count as one.
//
// The state can change before you read it. The exit status is 0, whatever the state is. A KEY that
// is free and has a * or a ? is refused with 64: it is most likely a pattern, for list. Status
// prints no token.
//
// # Unlock
//
// Unlock releases a lock that another process holds. It shows who holds KEY and asks whether to
// release it. With -f it does not ask. -f is required if stdin is not a terminal. Unlock releases
// only the lock that it has shown, and no newer one: if another owner has acquired KEY in the
// meantime, it releases nothing and exits with 75. It leaves a key without a TTL alone, because
// this command acquires no such lock.
//
// If nobody holds KEY, and a min hold or -keep-after keeps others out, unlock shows that, asks
// whether to end it, and ends it. So a job that has just run can run again. With -f it does not
// ask.
//
// The owner notices only at its next renewal, and may continue to work until then: for up to a third
// of its TTL, which is 3.3 s by default. Without renewal it does not notice before its TTL has passed.
// The next waiter gets the lock at once. So use unlock only if you know that the owner no longer
// works. Unlock says this before it asks, and after it has released a lock.
//
//	-owner NAME  release only what the holders with this name hold
//
// If KEY is a semaphore or a read-write lock with several holders, -owner is required. Unlock
// releases all permits of that name, and leaves the others alone. So give each process its own
// name, as the default does. Readers of one process can share a permit: unlock releases it for all of
// them. If no holder has the name, unlock releases nothing and exits with 75.
//
// # Exit status
//
//	0       success. For unlock: also if KEY was free. For run: COMMAND returned 0
//	1       for unlock: the answer was no
//	64      the arguments or REDIS_URL are invalid
//	69      Redis is unavailable or answers with an error, or KEY is not a lock. For list: some servers could not be read
//	70      for run: the lock was lost while COMMAND ran, or -max-hold ended COMMAND
//	74      what list, status, watch or version print could not be written
//	75      another owner holds KEY, or its min hold keeps others out. For run: or what -busy-status says
//	126     COMMAND cannot be run
//	127     COMMAND was not found. Run checks this before it acquires the lock
//	128+n   signal n ended COMMAND or the wait. The convention of shells; also for watch and list -watch
//
// Any other status of run is the status of COMMAND. Run needs Linux, macOS or a BSD.
package main

# frozen_string_literal: true

module Onelock
  # A client of a lock store, for any number of threads. One for the whole program is enough.
  #
  # Making it opens no socket and starts no thread; it connects when it is first used, in a forked child anew. `Client.open` also
  # checks that the server answers. What is still held is released by `close`, and at the end of the program.
  class Client
    # `url` is the address of the store; without it, that in the environment variable `ONELOCK_URL`. A list of addresses is
    # Redlock over these servers. The README lists addresses and options; durations are seconds.
    #
    # `credentials` is for services whose passwords are tokens that expire: anything with `call`, which returns
    # `[user name, password]`, or the password of the server's default user. It is called for every new connection to a server,
    # on threads of its own, several at a time, and must return within the rest of `connect_timeout`.
    #
    # Raises InvalidArgument for a bad address or option, Unsupported for a store that is not built in and for an option that the
    # store lacks.
    def initialize(url = nil, **options)
      url = url.map { |one| Arguments.text(one, "url") }.join(" ") if url.is_a?(Array)
      url = Arguments.text(url, "url") unless url.nil?
      @handle = Native.object(:client_new, :client_free, url, Options.of_client(options))
      @prompt = nil
      @tried = [nil, 0]
    end

    # A client that is connected and checked; with a block, what the block returns, and the client is closed at its end. Returns
    # within `connect_timeout` + `request_timeout`.
    #
    # Raises what `Client.new` raises, the error of the server (ServerUnavailable, AuthenticationFailed, NotPermitted, ...), and
    # Unsupported when its fencing grade is below `min_fencing_grade`.
    def self.open(url = nil, **options)
      client = new(url, **options)
      begin
        client.check
        block_given? ? yield(client) : (opened = client)
      ensure
        # also the connections of a client that nobody gets
        client.close unless opened
      end
    end

    # The lock of this name, a Lock: one holder at a time, among all clients with the same server, prefix and name. No I/O.
    #
    # It is not reentrant: a holder that acquires it again waits for its own release. On the server it is a string that any
    # `SET NX PX` client respects. `wait` is how many seconds `acquire` and `synchronize` wait by default (nil: without limit).
    # `ttl`, `auto_renew`, `min_hold`, `max_hold`, `lock_delay`, `min_validity` and `fencing` have the client's values where they
    # are left out. `on_lost` and `on_jeopardy` are procs for every lease of it; see Lease.
    def lock(name, **options)
      made(Lock, :lock, name, options)
    end

    # The reentrant lock of this name: its owner may acquire it again. No I/O.
    #
    # The owner is the argument `owner`, an Owner, or that of the `owner_scope` around; otherwise the fiber, and so the thread
    # where the program makes no fibers. On the server it is a hash that Redisson's `RLock` shares. Otherwise as `lock`.
    def reentrant_lock(name, **options)
      made(Lock, :reentrant_lock, name, options)
    end

    # The fair lock of this name: first come, first served among the processes that wait. No I/O.
    #
    # Each client has one place in the queue, and its own waiters take turns. A waiter that is killed or stands still loses its turn
    # within a second. It is not reentrant, and slower than `lock`. Not on several servers: Unsupported. Otherwise as `lock`.
    def fair_lock(name, **options)
      made(Lock, :fair_lock, name, options)
    end

    # The read/write lock of this name, a RwLock. Owners are as in `reentrant_lock`. On the server it is a hash that Redisson's
    # `RReadWriteLock` shares. Not on several servers: Unsupported. Otherwise as `lock`.
    def rw_lock(name, **options)
      made(RwLock, nil, name, options)
    end

    # The semaphore of this name: at most `permits` holders at a time, 1 to 1024, in all programs together. No I/O.
    #
    # The number must be the same everywhere, or acquiring raises PermitsMismatch; nil stands for whatever is set. There is no
    # fencing token, since several hold at once. Who waits is served first come, first served. On the server it is what Redisson's
    # `RPermitExpirableSemaphore` has, whose clients do not queue. Redlock has none. Otherwise as `lock`.
    def semaphore(name, permits = nil, **options)
      made(Semaphore, :semaphore, name, options, permits: permits)
    end

    # The locks of these names, held all together or not at all, a MultiLock. No I/O.
    #
    #   client.multi_lock("account:1", "account:2", wait: 5).synchronize { |lease| transfer }
    #
    # Options are those of each lock. For locks of other kinds, clients or options there is `MultiLock.new`.
    def multi_lock(*names, wait: nil, on_lost: nil, on_jeopardy: nil, **options)
      MultiLock.new(*names.map { |name| lock(name, **options) }, wait: wait, on_lost: on_lost, on_jeopardy: on_jeopardy)
    end

    # The state of the lock of this name, of any kind, and who waits for it, an Inspection; nil when it is free. One round trip, and
    # one more where it is held, of a semaphore two. (Without a name it is `Object#inspect`.)
    #
    # It is meant for dashboards: the answer may be outdated when it arrives. Raises WrongKind when the key is not a lock.
    def inspect(name = (bare = true))
      return "#<#{self.class.name}>" if bare

      name = Arguments.name(name)
      Found.inspection(Native.result(:client_inspect, :pointer, @handle, name, name.bytesize))
    end

    # The locks whose names match `pattern`, about `limit` of them at a time, whoever holds them, a LockPage.
    #
    # The pattern is the server's own: `*`, `?`, `[abc]`, `[^a-z]`, and a backslash before a character that stands for itself.
    # `cursor` is nil for the first page and the `next` of the page before for each further one; `listing` does that.
    #
    # What counts as a lock: one of this library, one of Redisson, and a string of at most 128 bytes with a time to live, as any
    # `SET NX PX` client writes it; `inspection.origin` says which. A lock that stands from the first page to the last is told,
    # perhaps twice; one that comes or goes meanwhile may be missed.
    def list(pattern = "*", limit: 100, cursor: nil)
      pattern = Arguments.name(pattern, "pattern")
      limit = Arguments.count(limit, "limit")
      cursor = Arguments.text(cursor, "cursor") unless cursor.nil?
      Found.page(Native.result(:client_list, :pointer, @handle, pattern, pattern.bytesize, limit, cursor))
    end

    # All locks whose names match `pattern`, one LockEntry after the other: the pages of `list`. Without a block an Enumerator.
    def listing(pattern = "*", &block)
      return enum_for(:listing, pattern) unless block

      cursor = nil
      loop do
        page = list(pattern, cursor: cursor)
        page.entries.each(&block)
        cursor = page.next
        return self if cursor.nil?
      end
    end

    # Releases the lock of this name without its holder, and wakes a waiter. True when it was held.
    #
    # It deletes a lock of this library, one of Redisson, or a string with a time to live; otherwise it raises WrongKind and
    # leaves the key untouched. With `foreign: true` it also deletes a string without a time to live, such as the lock of a client
    # that uses `SET NX` alone: be sure that the key is a lock.
    #
    # The former holder detects it at its next renewal. Until then its lease still counts as held. The next fencing token is higher,
    # so a resource that checks tokens stays safe. It is meant for operators in an emergency.
    def force_release(name, foreign: false)
      name = Arguments.name(name)
      call = Arguments.flag(foreign, "foreign") ? :client_force_release_foreign : :client_force_release
      Native.result(call, :bool, @handle, name, name.bytesize)
    end

    # Queries the server: version, fencing grade, and settings that can break locks, a Facts.
    def check
      Found.facts(Native.result(:client_check, :pointer, @handle))
    end

    # Looks at the servers of this client step by step, and tells which step fails and what to do, a Diagnosis.
    #
    #   client.diagnose("app:").findings.each { |found| puts [found.severity, found.step, found.detail, found.todo].join(" ") }
    #
    # `name` is what the names of locks begin with that this user may lock, since permissions are tried on such a name. Nothing is
    # changed on the server. It takes some seconds at most where everything answers. What fails is a finding, not an error.
    def diagnose(name = "")
      name = Arguments.name(name)
      Found.diagnosis(Native.result(:client_diagnose, :pointer, @handle, name, name.bytesize))
    end

    # Counters of this client, and histograms of waiting and holding, a Stats. No I/O.
    def stats
      process, tried = @tried
      Stats.__send__(:new, Native.object(:client_stats, :stats_free, @handle), process == Process.pid ? tried : 0)
    end

    # Releases what is held, waits for clean-up (at most `close_timeout`), and ends background work.
    #
    # Waiting acquires end with ClientClosed, and so does every later call but `Lease#release`. It may be called again.
    def close
      Native.call(:client_close, @handle)
      nil
    end

    private

    attr_reader :handle

    # What a program may say of a lock by keyword. The library says which kinds of lock have owners.
    COMMON = (%i[wait owner on_lost on_jeopardy renew_every] + Options::LOCK.keys).freeze
    private_constant :COMMON

    def made(type, kind, name, options, **own)
      unknown = options.keys - COMMON
      raise ArgumentError, "unknown keyword: #{unknown.first.inspect}" unless unknown.empty?

      type.__send__(:new, self, *kind, name, **own, **options)
    end

    # Whether the server answers promptly, as far as is known in this process.
    def prompt?
      @prompt == Process.pid
    end

    def answered(promptly)
      @prompt = promptly ? Process.pid : nil
    end

    def tried
      process, count = @tried
      @tried = process == Process.pid ? [process, count + 1] : [Process.pid, 1]
    end
  end
end

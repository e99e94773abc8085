# frozen_string_literal: true

module Onelock
  # A client that holds or waits, where it is `inspectable`: `label` (or nil), `host`, `pid`, and of a holder `since`, a Time.
  ClientInfo = Struct.new(:label, :host, :pid, :since, keyword_init: true)

  # Somebody who waits: `client`, a ClientInfo or nil, and `since`, a Time of the server's clock.
  Waiter = Struct.new(:client, :since, keyword_init: true)

  # The state of a lock.
  #
  # `kind`:: as `Lock#kind`
  # `origin`:: `:onelock`, `:redisson` or `:other`: which client's lock it is, as far as can be told
  # `hold_count`:: the hold count of the holder; of a semaphore, how many permits are held
  # `fencing_token`:: of the present hold; nil for none
  # `ttl_left`:: seconds; nil for a foreign key without a time to live
  # `owner`:: a ClientInfo; nil when it is not known
  # `foreign_holder`:: of a holder that is no client of this library, what tells people who it is; or nil
  # `permits`, `free`:: of a semaphore; nil for any other lock
  # `waiting`:: how many processes wait for it; nil where the server doesn't tell
  # `waiters`:: the first 16 that have a place in the queue on the server, a list of Waiter
  Inspection = Struct.new(:kind, :origin, :hold_count, :fencing_token, :ttl_left, :owner, :foreign_holder, :permits, :free,
                          :waiting, :waiters, keyword_init: true)

  # One of the locks that `Client#list` found: `name`, `inspection`, and `waiting`: how many processes wait for it, nil where
  # that cannot be told.
  LockEntry = Struct.new(:name, :inspection, :waiting, keyword_init: true)

  # What `Client#list` found: `entries`, a list of LockEntry, and `next`: the `cursor` of the next page; nil on the last one.
  LockPage = Struct.new(:entries, :next, keyword_init: true)

  # Reads what the C library found.
  module Found
    class << self
      # The state of a lock, of a handle that is freed.
      def inspection(pointer)
        return nil if pointer.null?

        found = Native.owned(pointer, :inspection_free)
        token = Native.inspection_fencing_token(found)
        ttl_left = known(Native.inspection_ttl_left_ms(found))
        Inspection.new(
          kind: Native.word(:kind_name, Native.inspection_kind(found)),
          origin: Native.word(:origin_name, Native.inspection_origin(found)),
          hold_count: Native.inspection_hold_count(found),
          fencing_token: token.zero? ? nil : token,
          ttl_left: ttl_left && (ttl_left / 1000.0),
          owner: owner(found),
          foreign_holder: Native.text(Native.inspection_foreign_holder(found)),
          permits: known(Native.inspection_permits(found)),
          free: known(Native.inspection_free_permits(found)),
          waiting: known(Native.inspection_waiting(found)),
          waiters: Array.new(Native.inspection_waiters(found)) { |at| waiter(found, at) }.freeze
        ).freeze
      end

      def page(pointer)
        page = Native.owned(pointer, :page_free)
        length = FFI::MemoryPointer.new(:size_t)
        entries = Array.new(Native.page_count(page)) do |at|
          name = Native.page_name(page, at, length)
          LockEntry.new(
            name: Arguments.told(name.read_bytes(length.get(:size_t, 0))),
            inspection: inspection(Native.result(:page_inspection, :pointer, page, at)),
            waiting: known(Native.page_waiting(page, at))
          ).freeze
        end
        LockPage.new(entries: entries.freeze, next: Native.text(Native.page_next(page))).freeze
      end

      private

      def known(number)
        number.negative? ? nil : number
      end

      def time(milliseconds)
        Time.at(0, milliseconds, :millisecond)
      end

      def owner(found)
        return nil unless Native.inspection_has_owner(found)

        ClientInfo.new(
          label: Native.text(Native.inspection_owner_label(found)), host: Native.text(Native.inspection_owner_host(found)),
          pid: Native.inspection_owner_pid(found), since: time(Native.inspection_owner_since_ms(found))
        ).freeze
      end

      def waiter(found, index)
        label = Native.inspection_waiter_label(found, index)
        client = label && ClientInfo.new(
          label: Native.text(label), host: Native.text(Native.inspection_waiter_host(found, index)),
          pid: Native.inspection_waiter_pid(found, index)
        ).freeze
        Waiter.new(client: client, since: time(Native.inspection_waiter_since_ms(found, index))).freeze
      end
    end
  end
  private_constant :Found
end

# frozen_string_literal: true

module Onelock
  # The options of clients and locks, and how the C library takes them. Durations are seconds.
  module Options
    KINDS = { lock: 1, reentrant_lock: 2, fair_lock: 3, read_lock: 4, write_lock: 5, semaphore: 6 }.freeze
    GRADES = %w[none best_effort clock_bounded strict].freeze
    WAYS = %w[auto classic sharded both].freeze

    CLIENT = {
      # written by tools/options.py: client
      ttl: :duration,
      auto_renew: :flag,
      min_hold: :duration,
      max_hold: :duration,
      lock_delay: :duration,
      min_validity: :duration,
      fencing: :flag,
      drift_factor: :share,
      prefix: :bytes,
      min_fencing_grade: :grade,
      label: :text,
      inspectable: :flag,
      accepted_warnings: :text,
      connect_timeout: :duration,
      request_timeout: :duration,
      close_timeout: :duration,
      unreachable_limit: :duration,
      credentials: :function,
      ca_file: :path,
      client_certificate: :certificate,
      tls_insecure: :flag,
      notify: :notify,
      min_replicas: :count,
      replica_timeout: :duration,
      sentinel_username: :text,
      sentinel_password: :secret,
      sentinel_tls: :flag,
      node_timeout: :duration,
      quarantine: :duration,
      # end of client
    }.freeze

    LOCK = {
      # written by tools/options.py: lock
      ttl: :duration,
      auto_renew: :flag,
      min_hold: :duration,
      max_hold: :duration,
      lock_delay: :duration,
      min_validity: :duration,
      fencing: :flag,
      # end of lock
    }.freeze

    # What belongs together: both or none.
    PAIR = %i[cert_file key_file].freeze

    { client_options: CLIENT, lock_options: LOCK }.each do |noun, options|
      options.each { |name, type| Native.setter(noun, name, type) unless type == :function }
    end

    class << self
      def of_client(given)
        return nil if given.empty?

        options = Native.owned(Native.client_options_new, :client_options_free)
        given = certificate(given)
        given.each { |name, value| set(:client_options, options, CLIENT, name, value) unless value.nil? }
        options
      end

      # The block sets what only a lock has.
      def of_lock(given)
        options = Native.owned(Native.lock_options_new, :lock_options_free)
        given.each do |name, value|
          next if value.nil?

          if name == :renew_every
            # for tests only
            Native.call(:lock_options_set_renew_every, options, Arguments.milliseconds(value, "renew_every"))
          else
            set(:lock_options, options, LOCK, name, value)
          end
        end
        yield options
        options
      end

      private

      # The two files of a certificate as one option.
      def certificate(given)
        cert_file, key_file = PAIR.map { |name| given[name] }
        return given if cert_file.nil? && key_file.nil?
        raise InvalidArgument, "set options: cert_file and key_file go together" if cert_file.nil? || key_file.nil?

        given.except(*PAIR).merge(client_certificate: [cert_file, key_file])
      end

      def set(noun, options, table, name, value)
        type = table.fetch(name) { raise ArgumentError, "unknown keyword: #{name.inspect}" }
        return Credentials.set(options, value) if type == :function

        Native.call(:"#{noun}_set_#{name}", options, *converted(name, type, value))
      end

      def converted(name, type, value)
        case type
        when :duration then Arguments.milliseconds(value, name)
        when :bytes then Arguments.name(value, name).then { |bytes| [bytes, bytes.bytesize] }
        when :grade then Arguments.word(value, name, GRADES)
        when :notify then Arguments.word(value, name, WAYS)
        when :certificate then value.zip(PAIR).map { |file, word| Arguments.text(file, word) }
        when :flag, :share, :count then Arguments.public_send(type, value, name)
        else Arguments.text(value, name)
        end
      end
    end
  end
  private_constant :Options
end

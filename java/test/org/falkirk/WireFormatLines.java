package org.falkirk;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * Answers each line with a line: {@code content} and hexadecimal digits, or {@code reason}, or {@code away}.
 *
 * <p>A line has, separated by spaces: the URL of the registry, the authorization after the word Basic (or {@code -}), how
 * long to wait in milliseconds, {@code avro} or {@code json}, and the value as {@code x} and hexadecimal digits. The
 * argument is the reader's schema.
 */
public final class WireFormatLines {
    private WireFormatLines() {}

    public static void main(String[] given) throws Exception {
        Map<String, WireFormat> formats = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] parts = line.split(" ");
            byte[] value = HexFormat.of().parseHex(parts[4].substring(1));
            String authorization = parts[1].equals("-") ? null : "Basic " + parts[1];
            WireFormat format = formats.computeIfAbsent(line.substring(0, line.lastIndexOf(' ')), each ->
                    new WireFormat(
                            new RegistryAddress(parts[0], authorization, null),
                            parts[3].equals("avro") ? given[0] : null, Long.parseLong(parts[2])));
            try {
                InternalRow row = format.call(value);
                System.out.println(row.isNullAt(1)
                        ? "content " + HexFormat.of().formatHex(row.getBinary(0))
                        : "reason " + row.getUTF8String(1));
            } catch (RegistryAway away) {
                System.out.println("away " + away.getMessage());
            }
            System.out.flush();
        }
    }
}

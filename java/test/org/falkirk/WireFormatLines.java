package org.falkirk;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * Answers each line, a value as hexadecimal digits, with a line: `content` and the digits, or `reason`, or `away`.
 *
 * <p>Arguments: the URL of the registry, the authorization (or an empty text), how long to wait in milliseconds, and the
 * reader's schema (or an empty text for JSON).
 */
public final class WireFormatLines {
    private WireFormatLines() {}

    public static void main(String[] given) throws Exception {
        RegistryAddress address = new RegistryAddress(given[0], given[1].isEmpty() ? null : given[1], null);
        WireFormat format = new WireFormat(address, given[3].isEmpty() ? null : given[3], Long.parseLong(given[2]));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            try {
                InternalRow row = format.call(HexFormat.of().parseHex(line));
                String reason = row.isNullAt(1) ? null : row.getUTF8String(1).toString();
                System.out.println(reason == null ? "content " + HexFormat.of().formatHex(row.getBinary(0)) : "reason " + reason);
            } catch (RegistryAway away) {
                System.out.println("away " + away.getMessage());
            }
            System.out.flush();
        }
    }
}
